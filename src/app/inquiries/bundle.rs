//! Collects the parts of a bundle, one page for each question, and removes the secrets.

mod cluster;
mod inventory;
mod masking;
pub(super) mod names;

use super::protocol::Answer;
use super::{Inquiries, check, status, whole};
use crate::app::reports::bundle::{BundlePart, PartContent, PartPage};
use crate::app::reports::{self, Verdict};
use crate::controllers::decisions::{Decision, MAX_DECISIONS};
use masking::SecretMasks;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum size of the text of the log, in bytes. The answer is in JSON, and has at most 8 MiB.
const MAX_LOG: usize = 2 << 20;

/// Returns a page of a part. `from` is the place at which the page begins.
pub(super) async fn answer(process: &Inquiries, part: BundlePart, from: Option<&str>, masks_users: bool) -> Answer {
    let PartPage { content, next, gap } = page(process, part, from).await;
    let masks = masks(process, masks_users);
    let content = match content {
        PartContent::Document(document) => PartContent::Document(masks.document(document)),
        PartContent::Lines(text) => PartContent::Lines(masks.text(&text)),
        PartContent::Unavailable(reason) => PartContent::Unavailable(masks.text(&reason)),
        PartContent::Unread(reason) => PartContent::Unread(masks.text(&reason)),
    };
    let gap = gap.map(|reason| masks.text(&reason));
    Answer::BundlePart(Box::new(PartPage { content, next, gap }))
}

fn masks(process: &Inquiries, masks_users: bool) -> SecretMasks {
    let secrets = process.vsphere.secrets();
    let users = if masks_users { process.vsphere.users() } else { BTreeSet::new() };
    SecretMasks::new(secrets.iter().map(|secret| secret.expose_secret()), users)
}

async fn page(process: &Inquiries, part: BundlePart, from: Option<&str>) -> PartPage {
    let content = match part {
        BundlePart::Screen => screen(process),
        BundlePart::Status => of_answer(status::answer(process, None, None)),
        BundlePart::Check => {
            let options = check::CheckOptions { node: None, vcenter: None, is_deep: true, is_preflight: false };
            of_answer(check::answer(process, &options).await)
        }
        BundlePart::Configuration => configuration(process),
        BundlePart::Flags => PartContent::Lines(process.flags.clone()),
        BundlePart::Decisions => decisions(process),
        BundlePart::Log => PartContent::Lines(process.log.text(MAX_LOG)),
        BundlePart::Metrics => match process.metrics.encode() {
            Ok(text) => PartContent::Lines(text),
            Err(error) => PartContent::Unread(error.to_string()),
        },
        BundlePart::Leases => return cluster::leases(process).await,
        BundlePart::Events => return cluster::events(process).await,
        BundlePart::Inventory => return inventory::page(process, from),
        BundlePart::Nodes => return cluster::nodes(process, from),
    };
    PartPage::only(content)
}

fn screen(process: &Inquiries) -> PartContent {
    match status::answer(process, None, None) {
        Answer::Status(report) => {
            let lines: Vec<String> = report.lines().iter().map(|line| format!("{}\n", line.text())).collect();
            PartContent::Lines(lines.concat())
        }
        other => unexpected(&other),
    }
}

/// Returns the document of a report, as with `-o json`.
fn of_answer(answer: Answer) -> PartContent {
    match answer {
        Answer::Status(report) => document("Status", report.verdict(), &*report),
        Answer::Check(report) => document("CheckReport", report.verdict(), &*report),
        other => unexpected(&other),
    }
}

fn document(kind: &str, verdict: Verdict, report: &impl Serialize) -> PartContent {
    match serde_json::to_value(report) {
        Ok(fields) => PartContent::Document(reports::document(kind, verdict, fields)),
        Err(error) => PartContent::Unread(error.to_string()),
    }
}

/// Only an answer about a selected Node or vCenter can be another one, and nothing is selected.
fn unexpected(answer: &Answer) -> PartContent {
    PartContent::Unread(format!("the answer is not the expected one: {answer:?}"))
}

/// Returns the active configuration as this program reads it, with all defaults. Its secrets are in types that do not
/// print.
fn configuration(process: &Inquiries) -> PartContent {
    let cloud_config = process.vsphere.cloud_config();
    let mut text = format!("{:#?}\n", cloud_config.config);
    for (part, error) in &cloud_config.rejected {
        text += &format!("turned off: {part}: {error}\n");
    }
    for notice in &cloud_config.notices {
        text += &format!("warning: {notice}\n");
    }
    PartContent::Lines(text)
}

fn decisions(process: &Inquiries) -> PartContent {
    let all = process.decisions.last(MAX_DECISIONS, |_| true);
    PartContent::Document(Value::Array(all.iter().map(of_decision).collect()))
}

fn of_decision(decision: &Decision) -> Value {
    json!({
        "time": whole(decision.time),
        "term": decision.term,
        "kind": decision.kind.as_str(),
        "name": decision.name,
        "decision": decision.word,
        "text": decision.text,
    })
}
