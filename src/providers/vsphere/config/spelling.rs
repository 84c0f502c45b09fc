//! Pure: how messages spell a vCenter entry and its settings.

use super::fields::{Dialect, RawSection};
use crate::providers::vsphere::vcenter::spelling::Spelling;

/// Returns the spelling of the vCenter entry in this section.
pub(super) fn spelling_of(section: &RawSection) -> Spelling {
    let own = section.variables.iter().find(|(key, _)| *key == "thumbprint");
    let thumbprint = match section.dialect {
        Dialect::Ini | Dialect::Yaml => "thumbprint",
        Dialect::Environment => own.map_or("VSPHERE_THUMBPRINT", |(_, variable)| variable),
    };
    Spelling { dialect: section.dialect, section: section.shown.clone(), thumbprint: thumbprint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::thumbprint_texts;
    use super::super::{Environment, FileChecks, parse_within};

    const THUMBPRINT: &str =
        "11:22:33:44:55:06:07:08:09:10:11:12:13:14:15:16:17:18:19:20:21:22:23:24:25:26:27:28:29:30:31:32";

    /// Returns the messages about the only vCenter.
    fn shown(text: &str, variables: &[(&str, &str)]) -> [String; 3] {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let parsed = parse_within(text, "f", &Environment::new(variables), &FileChecks::default()).unwrap();
        let spelling = &parsed.config.vcenters[0].spelling;
        [spelling.place(), spelling.credentials_place(), spelling.thumbprint_line(THUMBPRINT)]
    }

    #[test]
    fn an_entry_is_named_as_the_file_in_use_writes_it() {
        let pair = ("VSPHERE_USER", "u");
        let password = ("VSPHERE_PASSWORD", "p");
        for (case, text, variables, expected) in [
            (
                "INI",
                "[Global]\nuser=u\npassword=p\n[VirtualCenter \"vc\"]\n",
                vec![],
                [
                    "[VirtualCenter \"vc\"] of the cloud config",
                    "[VirtualCenter \"vc\"] or [Global] of the cloud config",
                    "this line in [VirtualCenter \"vc\"] of the cloud config: thumbprint = {}",
                ],
            ),
            (
                "INI, Global alone",
                "[Global]\nserver=vc\nuser=u\npassword=p\n",
                vec![],
                [
                    "[Global] of the cloud config",
                    "[Global] of the cloud config",
                    "this line in [Global] of the cloud config: thumbprint = {}",
                ],
            ),
            (
                "YAML",
                "vcenter:\n  east:\n    server: vc\n    user: u\n    password: p\n",
                vec![],
                [
                    "vcenter.east of the cloud config",
                    "vcenter.east or global of the cloud config",
                    "this line in vcenter.east of the cloud config: thumbprint: '{}'",
                ],
            ),
            (
                "a variable with an id",
                "[Labels]\n",
                vec![("VSPHERE_VCENTER_A", "vc"), pair, password],
                [
                    "the variable VSPHERE_VCENTER_A and the variables of the same vCenter",
                    "the variable VSPHERE_VCENTER_A and the variables of the same vCenter",
                    "this variable: VCENTER_A_THUMBPRINT={}",
                ],
            ),
            (
                "the variable for one vCenter",
                "[Labels]\n",
                vec![("VSPHERE_VCENTER", "vc"), pair, password],
                [
                    "the variable VSPHERE_VCENTER and the variables of the same vCenter",
                    "the variable VSPHERE_VCENTER and the variables of the same vCenter",
                    "this variable: VSPHERE_THUMBPRINT={}",
                ],
            ),
        ] {
            assert_eq!(shown(text, &variables), expected.map(|part| part.replace("{}", THUMBPRINT)), "{case}");
        }
    }

    #[test]
    fn the_line_to_paste_is_read_as_that_thumbprint() {
        let of = |text: &str| {
            let parsed = parse_within(text, "f", &Environment::default(), &FileChecks::default()).unwrap();
            let vcenter = &parsed.config.vcenters[0];
            let line = vcenter.spelling.thumbprint_line(THUMBPRINT);
            (line.split_once("config: ").unwrap().1.to_owned(), thumbprint_texts(vcenter), parsed.warnings.len())
        };
        for (text, indentation) in [
            ("[VirtualCenter \"vc\"]\nuser = u\npassword = p\n", ""),
            ("global:\n  server: vc\n  user: u\n  password: p\n", "  "),
        ] {
            let (line, before, _) = of(text);
            assert_eq!(before, Vec::<String>::new());
            let (_, after, warnings) = of(&format!("{text}{indentation}{line}\n"));
            assert_eq!((after, warnings), (vec![THUMBPRINT.to_owned()], 0), "{line}");
        }
    }
}
