//! Tests that credentials are compared by value and printed without secrets.

use super::*;

struct Fixed;

#[async_trait]
impl ReadToken for Fixed {
    async fn read(&self) -> Result<SecretString, String> {
        Ok("hidden-account".into())
    }
}

fn logins() -> Vec<Login> {
    let url = String::from("https://hidden-ticket@manager/");
    vec![
        Login::Password { user: "joan".into(), password: "hidden-1".into() },
        Login::Password { user: "joan".into(), password: "hidden-2".into() },
        Login::Certificate { certificate: "hidden-cert".into(), key: "hidden-3".into() },
        Login::Certificate { certificate: "hidden-cert".into(), key: "hidden-4".into() },
        Login::SharedSession { url: url.clone(), token: SessionToken::Given("hidden-5".into()) },
        Login::SharedSession { url: url.clone(), token: SessionToken::Given("hidden-6".into()) },
        Login::SharedSession { url, token: SessionToken::ServiceAccount(Arc::new(Fixed)) },
    ]
}

#[test]
fn logins_are_equal_exactly_when_everything_in_them_is() {
    for (at, (one, again)) in logins().iter().zip(logins()).enumerate() {
        assert_eq!(*one, again, "{at}");
        assert!(logins().iter().enumerate().all(|(other, login)| other == at || login != one), "{at}");
    }
}

#[test]
fn no_login_prints_a_secret() {
    for login in logins() {
        let offer = CredentialState::Ready(vec![Arc::new(Credential { login, origin: Origin::Config })]);
        let shown = format!("{offer:?} {offer:#?}");
        assert!(!shown.contains("hidden"), "{shown}");
    }
}

#[tokio::test]
async fn a_token_is_the_one_given_or_that_of_the_service_account() {
    let given = SessionToken::Given("given".into());
    assert_eq!(given.read().await.unwrap().expose_secret(), "given");
    let account = SessionToken::ServiceAccount(Arc::new(Fixed));
    assert_eq!(account.read().await.unwrap().expose_secret(), "hidden-account");
}

#[test]
fn what_is_secret_in_a_login_is_wiped_on_drop() {
    fn is_wiped_on_drop<T: secrecy::zeroize::ZeroizeOnDrop>(_: &T) {}
    for login in logins() {
        match &login {
            Login::Password { password, .. } => is_wiped_on_drop(password),
            Login::Certificate { key, .. } => is_wiped_on_drop(key),
            Login::SharedSession { token: SessionToken::Given(token), .. } => is_wiped_on_drop(token),
            Login::SharedSession { token: SessionToken::ServiceAccount(_), .. } => {}
        }
    }
}
