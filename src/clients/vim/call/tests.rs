//! Tests of whole calls against a server in this process: sent requests, cookies, pages, and all kinds of failures.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::clients::http::tests::server::{Received, Reply, TestServer};
use crate::clients::vim::{Client, Error, FilterSpec, MoRef, Timeouts, UpdateSet};

fn answer(method: &str, content: &str) -> Reply {
    Reply::xml(
        200,
        &format!(
            "<E:Envelope xmlns:E=\"x\"><E:Body><{method}Response xmlns=\"urn:vim25\">{content}</{method}Response></E:Body></E:Envelope>"
        ),
    )
}

fn fault(name: &str) -> Reply {
    Reply::xml(
        500,
        &format!(
            "<E:Envelope><E:Body><E:Fault><faultstring/><detail><{name}Fault/></detail></E:Fault></E:Body></E:Envelope>"
        ),
    )
}

/// Returns the method that a request calls.
fn method(received: &Received) -> String {
    let body = received.body.split_once("<soapenv:Body><").unwrap().1;
    body.split_once(' ').unwrap().0.to_owned()
}

/// Returns the content of the method element in the body of a request.
fn content(received: &Received) -> String {
    let body = received.body.split_once(" xmlns=\"urn:vim25\">").unwrap().1;
    body.rsplit_once("</soapenv:Body>").unwrap().0.rsplit_once("</").unwrap().0.to_owned()
}

fn password() -> SecretString {
    SecretString::from("pa<ss>&\"word'".to_owned())
}

fn vm(id: &str) -> MoRef {
    MoRef::new("VirtualMachine", id)
}

#[tokio::test]
async fn requests_are_written_in_schema_order() {
    let server = TestServer::start(|received| answer(&method(received), "<returnval type=\"X\">x-1</returnval>")).await;
    let client = Client::new(server.client());
    let (view, collector) = (MoRef::new("ListView", "v"), MoRef::new("PropertyCollector", "pc"));
    client.login("ccm@vsphere.local", &password()).await.unwrap();
    client.find_all_by_uuid("4237F6B2-1111").await.unwrap();
    client.find_all_by_dns_name("node-1").await.unwrap();
    client.find_all_by_ip("10.0.0.1").await.unwrap();
    client.create_list_view(&[vm("vm-1")]).await.unwrap();
    client.modify_list_view(&view, &[vm("vm-2")], &[vm("vm-1"), vm("vm-3")]).await.unwrap();
    client.destroy_view(&view).await.unwrap();
    client.create_property_collector().await.unwrap();
    let spec = FilterSpec::of_object(&vm("vm-1"), &["config.extraConfig[\"a\"]"]);
    client.create_filter(&collector, &spec).await.unwrap();
    let _ = client.wait_for_updates(&collector, "", Duration::from_secs(120), 100).await;
    client.cancel_wait_for_updates(&collector).await.unwrap();
    client.destroy_property_collector(&collector).await.unwrap();
    let expected = [
        (
            "Login",
            "<_this type=\"SessionManager\">SessionManager</_this><userName>ccm@vsphere.local</userName><password>pa&lt;ss&gt;&amp;&quot;word&apos;</password>",
        ),
        (
            "FindAllByUuid",
            "<_this type=\"SearchIndex\">SearchIndex</_this><uuid>4237f6b2-1111</uuid><vmSearch>true</vmSearch><instanceUuid>false</instanceUuid>",
        ),
        (
            "FindAllByDnsName",
            "<_this type=\"SearchIndex\">SearchIndex</_this><dnsName>node-1</dnsName><vmSearch>true</vmSearch>",
        ),
        ("FindAllByIp", "<_this type=\"SearchIndex\">SearchIndex</_this><ip>10.0.0.1</ip><vmSearch>true</vmSearch>"),
        ("CreateListView", "<_this type=\"ViewManager\">ViewManager</_this><obj type=\"VirtualMachine\">vm-1</obj>"),
        (
            "ModifyListView",
            "<_this type=\"ListView\">v</_this><add type=\"VirtualMachine\">vm-2</add><remove type=\"VirtualMachine\">vm-1</remove><remove type=\"VirtualMachine\">vm-3</remove>",
        ),
        ("DestroyView", "<_this type=\"ListView\">v</_this>"),
        ("CreatePropertyCollector", "<_this type=\"PropertyCollector\">propertyCollector</_this>"),
        (
            "CreateFilter",
            "<_this type=\"PropertyCollector\">pc</_this><spec><propSet><type>VirtualMachine</type><all>false</all><pathSet>config.extraConfig[&quot;a&quot;]</pathSet></propSet><objectSet><obj type=\"VirtualMachine\">vm-1</obj><skip>false</skip></objectSet></spec><partialUpdates>false</partialUpdates>",
        ),
        (
            "WaitForUpdatesEx",
            "<_this type=\"PropertyCollector\">pc</_this><version></version><options><maxWaitSeconds>120</maxWaitSeconds><maxObjectUpdates>100</maxObjectUpdates></options>",
        ),
        ("CancelWaitForUpdates", "<_this type=\"PropertyCollector\">pc</_this>"),
        ("DestroyPropertyCollector", "<_this type=\"PropertyCollector\">pc</_this>"),
    ];
    let received = server.received();
    assert_eq!(received.len(), expected.len());
    for (request, (name, written)) in received.iter().zip(expected) {
        assert_eq!((method(request).as_str(), content(request).as_str()), (name, written));
        assert_eq!(request.line, "POST /sdk", "{name}");
        assert_eq!(request.header("soapaction"), Some("urn:vim25/6.7.3"), "{name}");
        assert_eq!(request.header("content-type"), Some("text/xml; charset=\"utf-8\""), "{name}");
    }
}

#[tokio::test]
async fn the_filters_are_written_as_the_golden_file_has_them() {
    let server = TestServer::start(|received| match method(received).as_str() {
        "CreateFilter" => answer("CreateFilter", "<returnval type=\"PropertyFilter\">f</returnval>"),
        other => answer(other, ""),
    })
    .await;
    let client = Client::new(server.client());
    let spec = FilterSpec::for_view(&MoRef::new("ListView", "session[1]view"));
    client.create_filter(&MoRef::new("PropertyCollector", "pc"), &spec).await.unwrap();
    let datacenters = FilterSpec::datacenters(&MoRef::new("Folder", "group-d1"));
    client.retrieve_properties(&datacenters).await.unwrap();
    let lines: Vec<String> = server.received().iter().map(|request| content(request).replace("><", ">\n<")).collect();
    let written = format!("{}\n", lines.join("\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/envelopes/filters.xml");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &written).unwrap();
    }
    assert_eq!(written, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}

#[tokio::test]
async fn a_session_cookie_goes_back_as_it_came_and_ends_with_its_session() {
    let logins = AtomicUsize::new(0);
    let server = TestServer::start(move |received| match method(received).as_str() {
        "Login" => {
            let cookie = format!(
                "vmware_soap_session=\"abc{}\"; Path=/; HttpOnly; Secure;",
                logins.fetch_add(1, Ordering::SeqCst)
            );
            answer("Login", "<returnval><key>k</key><userName>VSPHERE.LOCAL\\ccm</userName></returnval>")
                .with_header("Set-Cookie", "other=1; Path=/")
                .with_header("Set-Cookie", &cookie)
        }
        other => answer(other, ""),
    })
    .await;
    let client = Client::new(server.client());
    assert!(!client.is_logged_in().await.unwrap(), "nothing is asked without a cookie");
    for _ in 0..2 {
        client.login("ccm", &password()).await.unwrap();
        client.destroy_view(&vm("v")).await.unwrap();
    }
    assert_eq!(client.session_secret().unwrap().expose_secret(), "abc1");
    client.logout().await.unwrap();
    client.logout().await.unwrap();
    client.destroy_view(&vm("v")).await.unwrap();
    let received = server.received();
    let cookies: Vec<_> = received.iter().map(|request| (method(request), request.header("cookie"))).collect();
    let expected = [
        ("Login", None),
        ("DestroyView", Some("vmware_soap_session=\"abc0\"")),
        ("Login", None),
        ("DestroyView", Some("vmware_soap_session=\"abc1\"")),
        ("Logout", Some("vmware_soap_session=\"abc1\"")),
        ("DestroyView", None),
    ];
    assert_eq!(cookies, expected.map(|(name, cookie)| (name.to_owned(), cookie)));
}

#[tokio::test]
async fn a_refused_login_keeps_no_cookie() {
    let server = TestServer::start(|_| fault("InvalidLogin").with_header("Set-Cookie", "vmware_soap_session=x")).await;
    let client = Client::new(server.client());
    let error = client.login("ccm", &password()).await.unwrap_err();
    assert!(error.is_invalid_login() && !error.is_transient(), "{error}");
    assert!(client.session_secret().is_none());
    assert!(!format!("{error:?} {client:?}").contains("word"), "the password is nowhere");
    assert_eq!(server.received().len(), 1, "a login is sent once");
}

#[tokio::test]
async fn a_late_answer_of_an_old_session_does_not_replace_the_new_cookie() {
    let release = std::sync::Arc::new(Mutex::new(0));
    let counted = std::sync::Arc::clone(&release);
    let server = TestServer::start(move |received| {
        *counted.lock().unwrap() += 1;
        let cookie = match received.header("cookie") {
            None => "vmware_soap_session=first",
            Some(_) => "vmware_soap_session=second",
        };
        answer(&method(received), "").with_header("Set-Cookie", cookie)
    })
    .await;
    let client = Client::new(server.client());
    client.destroy_view(&vm("v")).await.unwrap();
    client.keep_cookie(None, SecretString::from("late".to_owned()));
    assert_eq!(client.session_secret().unwrap().expose_secret(), "first");
    client.destroy_view(&vm("v")).await.unwrap();
    assert_eq!(client.session_secret().unwrap().expose_secret(), "second");
    assert_eq!(*release.lock().unwrap(), 2);
}

#[tokio::test]
async fn whatever_is_no_answer_of_the_protocol_is_an_error_of_its_kind() {
    let answered = "<E:Envelope><E:Body><DestroyViewResponse/></E:Body></E:Envelope>";
    let cases: [(&str, Reply, &str, bool); 12] = [
        ("session gone", fault("NotAuthenticated"), "NotAuthenticated", false),
        ("version unknown", fault("InvalidCollectorVersion"), "InvalidCollectorVersion", false),
        ("server trouble", fault("SystemError"), "SystemError", true),
        ("502", Reply::html(502), "Status", true),
        ("503", Reply::html(503), "Status", true),
        ("504, empty", Reply::Whole(504, Vec::new(), Vec::new()), "Status", true),
        ("500 without a fault", Reply::html(500), "Status", true),
        ("500 with an answer", Reply::xml(500, answered), "Status", true),
        ("404", Reply::html(404), "Status", false),
        ("200 with a page", Reply::html(200), "Malformed", true),
        ("200 and nothing", Reply::xml(200, ""), "Malformed", true),
        ("half", Reply::Half(b"<E:Envelope><E:Body>0123456789".to_vec()), "Broken", true),
    ];
    for (name, reply, reason, is_transient) in cases {
        let server = TestServer::start(move |_| reply.clone()).await;
        let client = Client::new(server.client());
        let error = client.destroy_view(&MoRef::new("ListView", "v")).await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), (reason, is_transient), "{name}: {error}");
        let place = format!("DestroyView at 127.0.0.1:{}", server.port);
        assert!(error.to_string().starts_with(&place), "{name}: {error}");
        assert_eq!(server.received().len(), 1, "{name}");
    }
}

/// Returns an envelope with these entries in its body.
fn body(entries: &str) -> String {
    format!("<E:Envelope xmlns:E=\"x\"><E:Header><a/></E:Header><E:Body>{entries}</E:Body></E:Envelope>")
}

#[tokio::test]
async fn only_the_whole_answer_to_a_search_says_that_nothing_was_found() {
    let fault = "<E:Fault><faultstring/><detail><NotAuthenticatedFault/></detail></E:Fault>";
    let response = |content: &str| format!("<FindAllByUuidResponse>{content}</FindAllByUuidResponse>");
    let found = "<returnval type=\"VirtualMachine\">vm-1</returnval>";
    let cases = [
        ("nothing found", body(&response("")), "0"),
        ("written short", body("<FindAllByUuidResponse/>"), "0"),
        ("blanks and comments", body(&format!(" {} <!-- x -->\n", response(" \n\t<!-- y --> "))), "0"),
        ("something more in the envelope", body(&response(found)).replace("</E:Body>", "</E:Body><new/>"), "1"),
        ("two machines", body(&response(&format!("{found}\n{found}"))), "2"),
        ("another child", body(&response("<warning>later</warning>")), "Malformed"),
        ("another child after a result", body(&response(&format!("{found}<returnValue/>"))), "Malformed"),
        ("words", body(&response("the index is being rebuilt")), "Malformed"),
        ("words as a section", body(&response("<![CDATA[no]]>")), "Malformed"),
        ("a reference", body(&response("&no;")), "Malformed"),
        ("a fault inside", body(&response(fault)), "Malformed"),
        ("a result of no class", body(&response("<returnval xsi:nil=\"true\"/>")), "Malformed"),
        ("a fault after it", body(&format!("{}{fault}", response(""))), "NotAuthenticated"),
        ("a fault after results", body(&format!("{}{fault}", response(found))), "NotAuthenticated"),
        ("a fault before it", body(&format!("{fault}{}", response(""))), "NotAuthenticated"),
        ("two faults", body(&format!("{fault}{fault}")), "NotAuthenticated"),
        ("two answers", body(&response("").repeat(2)), "Malformed"),
        ("something beside it", body(&format!("{}<x/>", response(""))), "Malformed"),
        ("words beside it", body(&format!("{}no", response(""))), "Malformed"),
        ("words before it", body(&format!("no{}", response(""))), "Malformed"),
        ("a second body", body(&format!("{}</E:Body><E:Body>{fault}", response(""))), "Malformed"),
        ("a second document", format!("{}{}", body(&response("")), body(fault)), "Malformed"),
        ("an end too many", format!("{}</E:Envelope>", body(&response(""))), "Malformed"),
    ];
    for (name, document, expected) in cases {
        let server = TestServer::start(move |_| Reply::xml(200, &document)).await;
        let answer = Client::new(server.client()).find_all_by_uuid("u").await;
        let reported = answer.map_or_else(|error| error.reason().to_owned(), |found| found.len().to_string());
        assert_eq!(reported, expected, "{name}");
    }
}

#[tokio::test]
async fn what_is_new_in_data_is_passed_over_and_beside_it_is_an_error() {
    let object = "<objects><obj type=\"VirtualMachine\">vm-1</obj><new>1</new></objects>";
    for (content, expected) in [
        (format!("<returnval>{object}<new><a>1</a>x</new></returnval>"), "1"),
        (format!("<returnval>{object}</returnval><new/>"), "Malformed"),
        (format!("<returnval>{object}</returnval><returnval>{object}</returnval>"), "Malformed"),
        (String::new(), "0"),
    ] {
        let document = body(&format!("<RetrievePropertiesExResponse>{content}</RetrievePropertiesExResponse>"));
        let server = TestServer::start(move |_| Reply::xml(200, &document)).await;
        let spec = FilterSpec::of_object(&vm("vm-1"), &["name"]);
        let answer = Client::new(server.client()).retrieve_properties(&spec).await;
        let reported = answer.map_or_else(|error| error.reason().to_owned(), |objects| objects.len().to_string());
        assert_eq!(reported, expected, "{content}");
    }
    let fault = "<Fault><faultstring>no</faultstring></Fault>";
    for (entries, expected) in [
        ("<DestroyViewResponse/>".to_owned(), "ok"),
        (format!("<DestroyViewResponse>{fault}</DestroyViewResponse>"), "Malformed"),
        (format!("<DestroyViewResponse/>{fault}"), "Fault"),
    ] {
        let document = body(&entries);
        let server = TestServer::start(move |_| Reply::xml(200, &document)).await;
        let answer = Client::new(server.client()).destroy_view(&MoRef::new("ListView", "v")).await;
        assert_eq!(answer.map_or_else(|error| error.reason(), |()| "ok"), expected, "{entries}");
    }
}

#[tokio::test]
async fn a_missing_object_is_only_the_one_that_is_named() {
    let server = TestServer::start(|_| {
        Reply::xml(500, "<E:Envelope><E:Body><E:Fault><detail><F x:type=\"ManagedObjectNotFound\"><obj type=\"VirtualMachine\">vm-1</obj></F></detail></E:Fault></E:Body></E:Envelope>")
    })
    .await;
    let spec = FilterSpec::of_object(&vm("vm-1"), &["name"]);
    let error = Client::new(server.client()).retrieve_properties(&spec).await.unwrap_err();
    assert!(error.is_managed_object_not_found(&vm("vm-1")));
    assert!(!error.is_managed_object_not_found(&vm("vm-2")));
    assert!(!error.is_managed_object_not_found(&MoRef::new("ListView", "vm-1")));
}

#[tokio::test]
async fn a_read_follows_every_page_and_fails_whole() {
    let pages = AtomicUsize::new(0);
    let object = |id: &str| format!("<objects><obj type=\"VirtualMachine\">{id}</obj></objects>");
    let server = TestServer::start(move |received| {
        let name = method(received);
        match pages.fetch_add(1, Ordering::SeqCst) {
            0 => answer(&name, &format!("<returnval>{}<token>0</token></returnval>", object("vm-1"))),
            1 => answer(&name, &format!("<returnval><token>t&amp;</token>{}</returnval>", object("vm-2"))),
            2 => answer(&name, &format!("<returnval>{}</returnval>", object("vm-3"))),
            3 => answer(&name, "<returnval><token>x</token></returnval>"),
            _ => fault("InvalidArgument"),
        }
    })
    .await;
    let client = Client::new(server.client());
    let spec = FilterSpec::of_object(&vm("vm-1"), &["name"]);
    let objects = client.retrieve_properties(&spec).await.unwrap();
    let ids: Vec<_> = objects.iter().map(|object| object.object.id()).collect();
    assert_eq!(ids, ["vm-1", "vm-2", "vm-3"]);
    let received = server.received();
    assert!(content(&received[0]).ends_with("<options><maxObjects>100</maxObjects></options>"));
    assert_eq!(
        content(&received[2]),
        "<_this type=\"PropertyCollector\">propertyCollector</_this><token>t&amp;</token>"
    );
    let error = client.retrieve_properties(&spec).await.unwrap_err();
    assert_eq!(error.reason(), "InvalidArgument", "the second page failed, so nothing was read");
}

#[tokio::test]
async fn a_read_is_sent_again_when_the_connection_broke_before_an_answer_and_a_write_is_not() {
    let calls = AtomicUsize::new(0);
    let server = TestServer::start(move |received| match calls.fetch_add(1, Ordering::SeqCst) {
        0 | 2 => Reply::Close,
        _ => answer(&method(received), "<returnval type=\"VirtualMachine\">vm-1</returnval>"),
    })
    .await;
    let client = Client::new(server.client());
    assert_eq!(client.find_all_by_uuid("u").await.unwrap(), [vm("vm-1")]);
    assert_eq!(server.received().len(), 2);
    let error = client.destroy_view(&MoRef::new("ListView", "v")).await.unwrap_err();
    assert_eq!((error.reason(), server.received().len()), ("Broken", 3), "{error}");
}

#[tokio::test]
async fn connecting_agrees_on_a_version_and_refuses_what_is_no_vcenter() {
    let versions = "<namespaces><namespace><name>urn:vim25</name><version>6.5</version></namespace></namespaces>";
    let cases: [(&str, Reply, &str, Result<&str, &str>); 4] = [
        ("simulator", Reply::xml(200, versions), "VirtualCenter", Ok("urn:vim25/6.5")),
        ("no list", Reply::html(404), "VirtualCenter", Ok("urn:vim25/6.7.3")),
        ("unreadable list", Reply::html(200), "VirtualCenter", Ok("urn:vim25/6.7.3")),
        ("ESXi", Reply::html(404), "HostAgent", Err("is not a vCenter Server but VMware ESXi 8 (HostAgent)")),
    ];
    for (name, list, api_type, expected) in cases {
        let content = format!(
            "<returnval><searchIndex type=\"SearchIndex\">s-7</searchIndex><about><fullName>VMware ESXi 8</fullName>\
             <apiType>{api_type}</apiType><apiVersion>8.0.3.0</apiVersion><instanceUuid>u-1</instanceUuid></about></returnval>"
        );
        let server = TestServer::start(move |received| match received.line.as_str() {
            "GET /sdk/vimServiceVersions.xml" => list.clone(),
            _ => answer(&method(received), &content),
        })
        .await;
        match (Client::new(server.client()).connect().await, expected) {
            (Ok(found), Ok(action)) => {
                assert_eq!(found.search_index.id(), "s-7", "{name}");
                assert_eq!(found.about.instance_uuid.as_deref(), Some("u-1"), "{name}");
                assert!(
                    found.about.is_api_at_least([8, 0, 3, 0]) && !found.about.is_api_at_least([8, 0, 10, 0]),
                    "{name}"
                );
                assert_eq!(server.received()[1].header("soapaction"), Some(action), "{name}");
            }
            (Err(error @ Error::NotVcenter { .. }), Err(text)) => {
                assert!(error.to_string().ends_with(text), "{name}: {error}")
            }
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_wait_may_take_its_time_and_its_margin_but_no_more() {
    let server = TestServer::start(|received| match content(received).contains("<version>1</version>") {
        true => answer("WaitForUpdatesEx", ""),
        false => Reply::Hang,
    })
    .await;
    let client = |timeouts| Client::with_timeouts(server.client(), timeouts);
    let collector = MoRef::new("PropertyCollector", "pc");
    let patient = client(Timeouts::default());
    let nothing: Option<UpdateSet> = patient.wait_for_updates(&collector, "1", Duration::ZERO, 0).await.unwrap();
    assert_eq!(nothing, None);
    assert!(content(&server.received()[0]).contains("<maxObjectUpdates>1</maxObjectUpdates>"), "zero is illegal");
    let client = client(Timeouts { wait_margin: Duration::from_millis(200), ..Timeouts::default() });
    let error = client.wait_for_updates(&collector, "2", Duration::ZERO, 100).await.unwrap_err();
    assert_eq!(error.reason(), "Timeout", "{error}");
}
