//! Tests of lists (S10).

use serde_json::{Value, json};
use support::fake_nsx::{Behaviour, Cursor, EqualNames, LastCursor, Model, ResultCount};

use super::{Manager, assert_refused, route};

const ROUTES: &str = "/infra/tier-1s/t1/static-routes";

/// Returns a model with routes that have these ids and names.
fn model(routes: &[(&str, &str)]) -> Model {
    routes.iter().fold(Model::small(), |model, (id, name)| {
        let mut body = route("10.0.0.0/8", "10.1.0.1");
        body["display_name"] = json!(name);
        model.object(&format!("{ROUTES}/{id}"), body)
    })
}

fn ids(page: &Value) -> Vec<&str> {
    page["results"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_list_is_sorted_by_name_and_paged_by_cursor() {
    let manager = Manager::start(model(&[("1", "c"), ("2", "a"), ("3", "b")])).await;
    let (status, whole) = manager.get(ROUTES).await;
    assert_eq!((status, ids(&whole)), (200, vec!["2", "3", "1"]));
    assert_eq!((&whole["result_count"], whole.get("cursor")), (&json!(3), None));
    assert_eq!((&whole["sort_by"], &whole["sort_ascending"]), (&json!("display_name"), &json!(true)));
    let (_, first) = manager.get(&format!("{ROUTES}?page_size=2")).await;
    assert_eq!((ids(&first), &first["result_count"]), (vec!["2", "3"], &json!(3)));
    let cursor = first["cursor"].as_str().unwrap();
    let (_, last) = manager.get(&format!("{ROUTES}?page_size=2&cursor={cursor}")).await;
    assert_eq!((ids(&last), last.get("cursor"), last.get("result_count")), (vec!["1"], None, None));
    let (_, backwards) =
        manager.get(&format!("{ROUTES}?sort_by=id&sort_ascending=false&included_fields=id,path")).await;
    assert_eq!(backwards["results"][0], json!({"id": "3", "path": format!("{ROUTES}/3")}));
    let (_, gateways) = manager.get("/infra/tier-1s").await;
    assert_eq!(ids(&gateways), ["t1"], "and not what is below");
    for (query, names) in [
        ("page_size=0", "page_size"),
        ("page_size=1001", "page_size"),
        ("page_size=ten", "page_size"),
        ("sort_ascending=1", "sort_ascending"),
        ("colour=red", "colour"),
        ("cursor=1", "cursor"),
        (&format!("page_size=3&cursor={cursor}"), "cursor"),
    ] {
        assert_refused(&manager.get(&format!("{ROUTES}?{query}")).await, 400, 255, names);
    }
}

#[tokio::test]
async fn a_list_may_end_with_a_cursor_and_without_a_count() {
    let switches = Behaviour {
        last_cursor: LastCursor::Present,
        result_count: ResultCount::Missing,
        page_limit: 2,
        ..Behaviour::USUAL
    };
    let manager = Manager::start(model(&[("1", "a"), ("2", "b"), ("3", "c")]).behaviour(switches)).await;
    let (mut path, mut pages) = (ROUTES.to_owned(), Vec::new());
    let sizes = loop {
        let (_, page) = manager.get(&path).await;
        assert_eq!(page.get("result_count"), None);
        let next = format!("{ROUTES}?cursor={}", page["cursor"].as_str().unwrap());
        pages.push(ids(&page).len());
        if path == next {
            break pages;
        }
        path = next;
    };
    assert_eq!(sizes, [2, 1, 0], "the page after the last one is empty and has its own cursor again");
}

#[tokio::test]
async fn a_list_misses_an_object_while_another_is_deleted_if_cursors_are_positions() {
    for (cursor, expected) in [(Cursor::Position, vec!["4"]), (Cursor::Object, vec!["3", "4"])] {
        let routes = [("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")];
        let manager = Manager::start(model(&routes).behaviour(Behaviour { cursor, ..Behaviour::USUAL })).await;
        let (_, first) = manager.get(&format!("{ROUTES}?page_size=2")).await;
        assert_eq!(manager.delete(&format!("{ROUTES}/1")).await.0, 200);
        let next = format!("{ROUTES}?page_size=2&cursor={}", first["cursor"].as_str().unwrap());
        assert_eq!(ids(&manager.get(&next).await.1), expected);
    }
}

#[tokio::test]
async fn equal_names_have_the_order_of_the_switch() {
    let names: Vec<(String, &str)> = (0..9).map(|number| (number.to_string(), "same")).collect();
    let routes: Vec<(&str, &str)> = names.iter().map(|(id, name)| (id.as_str(), *name)).collect();
    let manager = Manager::start(model(&routes)).await;
    let order = async |equal_names| {
        manager.fake.set_behaviour(Behaviour { equal_names, result_count: ResultCount::EveryPage, ..Behaviour::USUAL });
        let (_, page) = manager.get(ROUTES).await;
        ids(&page).concat()
    };
    assert_eq!(order(EqualNames::ById).await, "012345678");
    assert_eq!(order(EqualNames::NewestFirst).await, "876543210");
    let (first, second) = (order(EqualNames::Unstable).await, order(EqualNames::Unstable).await);
    assert!(first != second, "{first} twice");
}

#[tokio::test]
async fn objects_of_other_programs_may_be_odd() {
    let manager = Manager::small().await;
    let odd = json!({"network": "10.0.0.0/8", "next_hops": [], "tags": [{"tag": "x"}, {"scope": "y"}], "colour": 7});
    manager.fake.put_by_hand("somebody", &format!("{ROUTES}/odd"), odd);
    let (_, page) = manager.get(ROUTES).await;
    let row = &page["results"][0];
    assert_eq!((&row["colour"], &row["tags"]), (&json!(7), &json!([{"tag": "x"}, {"scope": "y"}])));
    assert_eq!((&row["_create_user"], &row["_revision"]), (&json!("somebody"), &json!(0)));
    let mut read = row.clone();
    read["next_hops"] = json!([{"ip_address": "10.1.0.1"}]);
    let (status, put) = manager.put(&format!("{ROUTES}/odd"), &read).await;
    assert_eq!((status, &put["colour"]), (200, &json!(7)), "a field of a newer manager survives: {put}");
    manager.fake.change_by_hand("somebody", &format!("{ROUTES}/odd"), |route| route["colour"] = json!(8));
    assert_eq!(manager.fake.object(&format!("{ROUTES}/odd")).unwrap()["_revision"], 2);
    assert_eq!(manager.fake.objects_below(ROUTES).len(), 1);
    assert!(manager.fake.delete_by_hand("somebody", &format!("{ROUTES}/odd")));
    assert!(!manager.fake.delete_by_hand("somebody", &format!("{ROUTES}/odd")));
    let written: Vec<Value> = manager
        .fake
        .history()
        .into_iter()
        .filter(|version| version.user == "somebody")
        .map(|version| json!([version.request, version.object.map(|object| object["colour"].clone())]))
        .collect();
    assert_eq!(written, [json!([null, 7]), json!([null, 8]), json!([null, null])]);
}
