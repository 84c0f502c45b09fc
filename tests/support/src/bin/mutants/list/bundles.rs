//! Mutants of the bundle: of the removal of secrets and names, and of the bounds of what the process keeps for it.

use crate::{Mutant, Tests};

const BUNDLE: &str = "src/app/inquiries/bundle.rs";
const MASKING: &str = "src/app/inquiries/bundle/masking.rs";
const ANONYMISER: &str = "src/app/reports/bundle/anonymiser.rs";
const DECISIONS: &str = "src/controllers/decisions.rs";
const LOG: &str = "src/runtime/logging/recent.rs";

const MASKING_UNIT: Tests = &[&["--lib", "--", "app::inquiries::bundle"]];
const REPORTS_UNIT: Tests = &[&["--lib", "--", "app::reports::bundle"]];
const DAEMON: Tests = &[&["--test", "daemon", "--", "secrets::no_secret"]];

pub fn all() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "bundle-masks-no-document",
            BUNDLE,
            ("PartContent::Document(masks.document(document))", "PartContent::Document(document)"),
            DAEMON,
        ),
        Mutant::new(
            "bundle-masks-only-whole-secrets",
            MASKING,
            ("        ranges.extend(self.known_secrets(text));\n", ""),
            MASKING_UNIT,
        ),
        Mutant::new(
            "bundle-masks-no-base64",
            MASKING,
            ("in escaped_forms(secret).into_iter().chain(encoded_forms(secret)) {", "in escaped_forms(secret) {"),
            MASKING_UNIT,
        ),
        Mutant::new(
            "bundle-masks-no-unknown-secret",
            MASKING,
            ("let mut ranges = secrets_by_form(text);", "let mut ranges = Vec::new();"),
            MASKING_UNIT,
        ),
        Mutant::new(
            "bundle-anonymises-no-key",
            ANONYMISER,
            ("(self.text(&key), self.document(field))", "(key, self.document(field))"),
            REPORTS_UNIT,
        ),
        Mutant::new(
            "decisions-have-no-limit-in-bytes",
            DECISIONS,
            (" || self.bytes() > MAX_BYTES {", " {"),
            &[&["--lib", "--", "controllers::decisions"]],
        ),
        Mutant::new(
            "log-in-memory-has-no-limit-in-bytes",
            LOG,
            (" || self.compressed > MAX_COMPRESSED {", " {"),
            &[&["--lib", "--", "runtime::logging"]],
        ),
    ]
}
