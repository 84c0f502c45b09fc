//! Pure: builds the message for a Node without a VM: search terms, searched places, near matches and advice.

use super::{LookupDecision, NodeFacts, Question, SearchAnswer, VcenterAnswer};
use crate::base::quoting::listed;
use crate::cloud::{Reason, Unknown};
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::snapshot::Freshness;

/// Returns the vCenters that did not answer, each with the reason.
pub(super) fn silent(question: &Question<'_>) -> Vec<String> {
    unheard(question).map(unheard_reason).collect()
}

/// Returns the vCenters that did not answer, or became unavailable before they reported their matches.
fn unheard<'q>(question: &'q Question<'_>) -> impl Iterator<Item = &'q VcenterAnswer<'q>> {
    question.vcenters.iter().filter(|queried| match queried.answer {
        SearchAnswer::Pending | SearchAnswer::Silent(_) | SearchAnswer::Denied(_) => true,
        SearchAnswer::Gone(_) | SearchAnswer::Changed { .. } | SearchAnswer::Elsewhere(_) => false,
        SearchAnswer::Matches { ids, .. } => {
            queried.snapshot.freshness.failure().is_some()
                && ids
                    .iter()
                    .any(|id| !queried.snapshot.vms.contains_key(id) && !queried.snapshot.unresolved.contains(id))
        }
    })
}

/// Returns the name of a vCenter and the reason why it did not answer.
pub(super) fn unheard_reason(queried: &VcenterAnswer<'_>) -> String {
    format!("{} ({})", queried.server, why(queried))
}

fn why<'a>(queried: &'a VcenterAnswer<'_>) -> &'a str {
    match queried.answer {
        SearchAnswer::Silent(reason) | SearchAnswer::Denied(reason) => reason,
        _ => queried.snapshot.freshness.brief().unwrap_or("asked"),
    }
}

/// Returns the message about the vCenters for which a Node waits, and about those that do not have the VM.
fn waiting(question: &Question<'_>) -> String {
    let silent: Vec<&VcenterAnswer<'_>> = unheard(question).collect();
    let waiting = match silent.as_slice() {
        [only] => format!("waiting for vCenter {}: {}", only.server, why(only)),
        all => {
            let all: Vec<String> = all.iter().map(|queried| unheard_reason(queried)).collect();
            format!("waiting for {} vCenters: {}", all.len(), listed(&all))
        }
    };
    let is_alone = question.vcenters.len() == silent.len();
    if is_alone { waiting } else { format!("not found in the vCenters that answered; {waiting}") }
}

/// Reasons that require an action of an operator. Rejected credentials come first, because each further login may lock
/// the account.
const OWN_REASONS: [Reason; 3] =
    [reason::CredentialsRejected, reason::CredentialsMissing, reason::VCenterCertificateRejected];

/// Returns the reason for missing answers: one of `OWN_REASONS` if a vCenter gives it, a missing permission if every
/// silent vCenter denied the search, and otherwise an unavailable vCenter.
pub(super) fn silence_reason<'a>(vcenters: impl IntoIterator<Item = &'a VcenterAnswer<'a>>) -> Reason {
    let silent: Vec<&VcenterAnswer<'_>> =
        vcenters.into_iter().filter(|queried| !queried.answer.is_answered()).collect();
    let is_denied = |asked: &&VcenterAnswer<'_>| matches!(asked.answer, SearchAnswer::Denied(_));
    let has_reason = |asked: &VcenterAnswer<'_>, word: Reason| {
        asked.snapshot.freshness.check().is_err_and(|failure| failure.reason == word)
    };
    let is_given = |word: &Reason| silent.iter().any(|asked| has_reason(asked, *word));
    if let Some(own) = OWN_REASONS.into_iter().find(is_given) {
        own
    } else if !silent.is_empty() && silent.iter().all(is_denied) {
        reason::NoPermission
    } else {
        reason::VCenterUnavailable
    }
}

/// Returns the decision if no match may be taken. `set_aside` lists the matches that do not count, with their reasons.
pub(super) fn nothing_found(question: &Question<'_>, mut set_aside: Vec<String>) -> LookupDecision {
    if question.vcenters.is_empty() {
        // A standby has no sessions and queries no vCenter, so the result is unknown.
        return LookupDecision::Unresolved(Unknown::transient(
            reason::LookupPending,
            "this replica is a cold standby and does not query vCenter",
        ));
    }
    let silent = silent(question);
    let node = question.node;
    let denied = question.vcenters.iter().filter_map(|queried| match queried.answer {
        SearchAnswer::Denied(what) => Some(format!("{} ({what})", queried.server)),
        _ => None,
    });
    let denied: Vec<String> = denied.collect();
    if !denied.is_empty() {
        let others: Vec<String> = silent.into_iter().filter(|one| !denied.contains(one)).collect();
        let others = if others.is_empty() { String::new() } else { format!("; no answer from {}", listed(&others)) };
        let message = format!(
            "no vCenter that could be searched has this VM, and the search was denied by {}{others}; grant the account the \
             role Read-only with propagation there, the search is repeated within a minute",
            listed(&denied)
        );
        return LookupDecision::Unresolved(Unknown::new(reason::NoPermission, message));
    }
    if !silent.is_empty() {
        let message = waiting(question);
        return LookupDecision::Unresolved(unanswered(question.vcenters, message));
    }
    if let Some(unqueried) = &question.unqueried {
        let message = format!("not found in the vCenters that can be searched; {}", unqueried.message);
        return LookupDecision::Unresolved(Unknown::new(unqueried.reason, message));
    }
    if let Some(mismatch) = mismatch(question) {
        return LookupDecision::Unresolved(mismatch);
    }
    if !question.asked_by_name && !node.has_provider_id && set_aside.is_empty() {
        return LookupDecision::SearchByName;
    }
    let gone = question.vcenters.iter().filter_map(|asked| match asked.answer {
        SearchAnswer::Gone(id) => Some(format!("VM {id}, which backed the Node, no longer exists on {}", asked.server)),
        _ => None,
    });
    set_aside.extend(gone);
    let aside = if set_aside.is_empty() { String::new() } else { format!("; {}", listed(&set_aside)) };
    let places: Vec<String> = question.vcenters.iter().map(place).collect();
    let unknown = Unknown::new(
        reason::VMNotFound,
        format!(
            "no virtual machine with {} in {}{aside}; check that the VM exists there, that the account may read it, \
             and that `datacenters` covers it",
            search_terms(node, question.asked_by_name),
            listed(&places)
        ),
    );
    if set_aside.is_empty() { LookupDecision::NoMatch(unknown) } else { LookupDecision::Unresolved(unknown) }
}

/// Returns the result *unknown* with this message, because some of these vCenters have not answered.
pub(super) fn unanswered<'a>(
    vcenters: impl IntoIterator<Item = &'a VcenterAnswer<'a>> + Clone,
    message: String,
) -> Unknown {
    // The first connection of a process takes moments, or fails with a reason.
    let will_tell = |freshness: &Freshness| matches!(freshness, Freshness::Live | Freshness::Never);
    let is_under_way = |queried: &VcenterAnswer<'_>| {
        *queried.answer == SearchAnswer::Pending && will_tell(&queried.snapshot.freshness)
    };
    let is_silent = |asked: &VcenterAnswer<'_>| matches!(asked.answer, SearchAnswer::Silent(_));
    let only_waiting = vcenters.clone().into_iter().any(is_under_way) && !vcenters.clone().into_iter().any(is_silent);
    match only_waiting {
        true => Unknown::transient(reason::LookupPending, message),
        false => Unknown::new(silence_reason(vcenters), message),
    }
}

/// Returns a reason if the provider ID matches no VM and the Node's VM exists with another UUID.
fn mismatch(question: &Question<'_>) -> Option<Unknown> {
    let own = question.node.provider_id.as_ref()?;
    let found: Vec<String> = question
        .vcenters
        .iter()
        .filter_map(|queried| match queried.answer {
            SearchAnswer::Changed { id, uuid } => {
                Some(format!("VM {id} on {}, which backed the Node, now has BIOS UUID {uuid}", queried.server))
            }
            SearchAnswer::Elsewhere(ids) => {
                let system_uuid = question.node.system_uuid.as_ref().map(ToString::to_string).unwrap_or_default();
                Some(format!("VM {} on {} has the Node's systemUUID {system_uuid}", listed(ids), queried.server))
            }
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return None;
    }
    Some(Unknown::new(
        reason::ProviderIDMismatch,
        format!(
            "no virtual machine has the BIOS UUID of the provider ID, {own}; {}; delete the Node and restart its \
             kubelet, or set uuid.bios of the VM back to {own} while it is powered off",
            listed(&found)
        ),
    ))
}

fn search_terms(node: &NodeFacts, asked_by_name: bool) -> String {
    let Some(uuid) = node.search_uuid() else {
        return format!("guest host name {} (the Node reports no valid systemUUID to search for)", node.name);
    };
    let by_name = if asked_by_name { format!(" or guest host name {}", node.name) } else { String::new() };
    format!("BIOS UUID {uuid} or, in the other byte order, {}{by_name}", uuid.byte_swapped())
}

/// Returns the searched vCenter and datacenters, for messages.
fn place(queried: &VcenterAnswer<'_>) -> String {
    match queried.datacenters {
        [] => format!("{} (every datacenter)", queried.server),
        // Patterns and names may contain commas.
        datacenters => {
            let quoted: Vec<String> = datacenters.iter().map(|datacenter| format!("{datacenter:?}")).collect();
            format!("{} (datacenters {})", queried.server, listed(&quoted))
        }
    }
}
