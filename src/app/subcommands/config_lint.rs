//! `config-lint FILE`: checks a `vsphere.conf` and the files that it names as the daemon does, with the environment
//! variables of this process. Does not check Secrets, since no requests go to the API server.

use super::{CommandOutput, is_help};
use crate::app::files::SystemFiles;
use crate::app::options::unknown_variables;
use crate::app::settings::SettingErrors;
use crate::app::settings::vsphere::CloudConfigFile;
use crate::providers::vsphere::config::Environment;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Exit code if the file has errors.
const ERRORS: u8 = 1;

/// Exit code for wrong usage, or for a file that cannot be read.
const NOT_CHECKED: u8 = 2;

const HELP: &str = "Checks a vsphere.conf and the files that it names, as the daemon does, with the environment \
                    variables\nof this process.\n\n\
                    Exit codes: 0 no errors, 1 errors, 2 not checked.\n\n\
                    Usage: vsphere-cloud-controller-manager config-lint FILE\n\n\
                    Examples:\n  vsphere-cloud-controller-manager config-lint /etc/cloud/vsphere.conf\n";

pub(super) fn run(arguments: &[OsString]) -> CommandOutput {
    if is_help(arguments) {
        return CommandOutput::success(HELP.to_owned());
    }
    let path = match arguments {
        [path] if !path.to_string_lossy().starts_with('-') => path.into(),
        _ => return CommandOutput::failure("expected config-lint FILE", NOT_CHECKED),
    };
    let (environment, ipv6_pools) = (Environment::new(std::env::vars_os()), BTreeMap::new());
    let file = CloudConfigFile { path, environment, ipv6_pools };
    let shown = file.path.display();
    let content = match file.content(&SystemFiles) {
        Ok(content) => content,
        Err(error) => return CommandOutput::failure(&format!("{shown}: cannot be read: {error}"), NOT_CHECKED),
    };
    let unknown = unknown_variables();
    match file.check(&content, &SystemFiles).and_then(|cloud_config| cloud_config.without_refused_parts(None)) {
        Ok(cloud_config) => {
            let notices = cloud_config.notices.iter().map(ToString::to_string);
            let warnings = unknown
                .into_iter()
                .chain(notices)
                .chain(cloud_config.unverified())
                .map(|warning| format!("warning: {warning}\n"));
            CommandOutput { messages: warnings.collect(), ..CommandOutput::success(format!("{shown}: no errors\n")) }
        }
        Err(SettingErrors { errors: found, warnings }) => {
            let mistakes = SettingErrors { errors: found, warnings: [unknown, warnings].concat() };
            CommandOutput::failure(&mistakes.to_string(), ERRORS)
        }
    }
}
