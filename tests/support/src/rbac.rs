//! Roles of RBAC and their bindings, for accounts of a test.

use kube::Client;
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The account or the group that gets the rights of a role.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A user by name.
    User(&'a str),
    /// A group by name.
    Group(&'a str),
    /// A service account by namespace and name.
    ServiceAccount(&'a str, &'a str),
}

/// Grants rights by a role and a binding with this name: in a namespace, or in the whole cluster.
///
/// # Panics
///
/// As [`create`].
pub async fn grant(client: &Client, namespace: Option<&str>, name: &str, subject: Subject<'_>, rules: Value) {
    let metadata = json!({"name": name, "namespace": namespace});
    create(client, &json!({"kind": kind_of_role(namespace), "metadata": metadata, "rules": rules})).await;
    bind(client, namespace, name, subject, name).await;
}

/// Creates a binding with this name for an existing role.
///
/// # Panics
///
/// As [`create`].
pub async fn bind(client: &Client, namespace: Option<&str>, name: &str, subject: Subject<'_>, role: &str) {
    let kind = kind_of_role(namespace);
    let subject = match subject {
        Subject::User(name) => json!({"kind": "User", "apiGroup": GROUP, "name": name}),
        Subject::Group(name) => json!({"kind": "Group", "apiGroup": GROUP, "name": name}),
        Subject::ServiceAccount(namespace, name) => {
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
    };
    let binding = json!({
        "kind": format!("{kind}Binding"),
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [subject],
    });
    create(client, &binding).await;
}

fn kind_of_role(namespace: Option<&str>) -> &'static str {
    if namespace.is_some() { "Role" } else { "ClusterRole" }
}

/// Creates a role or a binding, by its kind and its namespace.
///
/// # Panics
///
/// If the API server does not accept it.
pub async fn create(client: &Client, object: &Value) {
    let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    let place = object["metadata"]["namespace"].as_str().map(|name| format!("namespaces/{name}/")).unwrap_or_default();
    let mut object = object.clone();
    object["apiVersion"] = json!(format!("{GROUP}/v1"));
    post(client, &format!("/apis/{GROUP}/v1/{place}{plural}"), &object).await;
}

/// Sends an object to this path, and returns the answer.
pub(crate) async fn post(client: &Client, path: &str, object: &Value) -> Value {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    client.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}; {object}"))
}
