//! Partial answers, pages of proxies, missing answers, and a vCenter that is down.

use std::time::Duration;

use ccm::clients::{vapi, vim};
use support::{Rule, Vcenter, eventually};

use super::{UUID, https, password, rest, scenario, soap};

#[tokio::test]
async fn no_half_answer_and_no_proxy_page_is_taken_for_nothing_found() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = soap(&vcenter).await;
    let page = "<html><body>no healthy upstream</body></html>";
    let cases = [
        ("cut", Rule::cut("FindAllByUuid"), "Broken"),
        ("closed, twice", Rule::drop("FindAllByUuid").times(2), "Broken"),
        ("503 page", Rule::status("FindAllByUuid", 503, page), "Status"),
        ("200 page", Rule::status("FindAllByUuid", 200, page), "Malformed"),
        ("system error", Rule::fault("FindAllByUuid", "SystemError"), "SystemError"),
    ];
    for (name, rule, reason) in cases {
        vcenter.add_rule(&rule).await;
        let error = client.find_all_by_uuid(UUID).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{name}: {error}");
        assert!(error.is_transient(), "{name}: {error}");
        vcenter.clear_rules().await;
        assert_eq!(client.find_all_by_uuid(UUID).await.unwrap().len(), 1, "{name}: it is there again");
    }
}

#[tokio::test]
async fn a_dead_connection_is_replaced_without_anybody_noticing() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = soap(&vcenter).await;
    vcenter.add_rule(&Rule::drop("FindAllByUuid").times(1)).await;
    assert_eq!(client.find_all_by_uuid(UUID).await.unwrap().len(), 1);
    assert_eq!(vcenter.counts().await.of("FindAllByUuid"), 2);
}

#[tokio::test]
async fn silence_is_a_timeout() {
    let vcenter = Vcenter::start(&scenario()).await;
    let limit = Duration::from_millis(500);
    let timeouts = vim::Timeouts { call: limit, ..vim::Timeouts::default() };
    let client = vim::Client::with_timeouts(https(&vcenter), timeouts);
    client.login(vcenter.user(), &password(&vcenter)).await.unwrap();
    vcenter.add_rule(&Rule::hang("FindAllByUuid")).await;
    let error = client.find_all_by_uuid(UUID).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("Timeout", true), "{error}");
    let rest =
        vapi::Client::with_timeouts(https(&vcenter), vapi::Timeouts { call: limit, ..vapi::Timeouts::default() });
    rest.login(vcenter.user(), &password(&vcenter)).await.unwrap();
    vcenter.add_rule(&Rule::hang("*")).await;
    assert_eq!(rest.list_categories().await.unwrap_err().reason(), "Timeout");
}

#[tokio::test]
async fn rest_failures_are_errors_and_never_empty_lists() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = rest(&vcenter).await;
    let page = "<html><body>no healthy upstream</body></html>";
    let cases = [
        (Rule::cut("*"), "Broken"),
        (Rule::status("*", 503, page), "Unavailable"),
        (Rule::status("*", 403, page), "Unauthorized"),
        (Rule::status("*", 200, page), "Malformed"),
    ];
    for (rule, reason) in cases {
        vcenter.add_rule(&rule).await;
        assert_eq!(client.list_categories().await.unwrap_err().reason(), reason);
        vcenter.clear_rules().await;
    }
    assert_eq!(client.list_categories().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_vcenter_that_is_down_cannot_be_connected_to_and_its_session_outlives_that() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = soap(&vcenter).await;
    vcenter.stop_listening().await;
    let error = client.find_all_by_uuid(UUID).await.unwrap_err();
    assert!(error.is_transient() && error.reason() == "Connect", "{error}");
    vcenter.resume_listening().await;
    let found = eventually("the search works again", Duration::from_secs(20), async || {
        client.find_all_by_uuid(UUID).await.map_err(|error| error.to_string())
    });
    assert_eq!(found.await.len(), 1);
}
