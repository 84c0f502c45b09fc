//! Tests of the fake vCenter: its record of logins, and its port.

use std::io::ErrorKind;
use std::time::Duration;

use support::{FakeVcenter, Fault, LoginOutcome, Model, Trouble};
use tokio::net::{TcpListener, TcpStream};

use crate::{LIMIT, Soap};

async fn log_in(fake: &FakeVcenter, password: &str) -> reqwest::Result<u16> {
    let body = format!(
        "<Login xmlns='urn:vim25'><_this type='SessionManager'>SessionManager</_this><userName>{}</userName>\
         <password>{password}</password></Login>",
        fake.user()
    );
    let answer = Soap::to(fake.url(), fake.ca_pem()).post(&body).await?;
    let status = answer.status().as_u16();
    answer.text().await.map(|_| status)
}

async fn log_in_over_rest(fake: &FakeVcenter, password: &str) -> u16 {
    let soap = Soap::to(fake.url(), fake.ca_pem());
    let address = format!("https://127.0.0.1:{}/rest/com/vmware/cis/session", fake.port());
    soap.http.post(address).basic_auth(fake.user(), Some(password)).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_fake_vcenter_takes_down_each_login_and_how_it_went() {
    use LoginOutcome::{Accepted, Rejected, TurnedAway, Unanswered};
    let fake = FakeVcenter::start(Model::small()).await;
    let right = fake.password();
    assert_eq!(log_in(&fake, &right).await.unwrap(), 200);
    assert_eq!(log_in(&fake, "wrong").await.unwrap(), 500);
    assert_eq!(log_in_over_rest(&fake, &right).await, 200);
    assert_eq!(log_in_over_rest(&fake, "wrong").await, 401);
    fake.set_password("another");
    assert_eq!(log_in(&fake, &right).await.unwrap(), 500);
    fake.set_password(&right);
    for (trouble, is_answered) in [
        (Trouble::Fault(Fault::new("NoPermission")), true),
        (Trouble::unavailable(), true),
        (Trouble::portal(), true),
        (Trouble::Lose, false),
        (Trouble::Cut(10), false),
        (Trouble::Drop, false),
    ] {
        fake.next("Login", trouble);
        assert_eq!(log_in(&fake, &right).await.is_ok(), is_answered);
    }
    fake.next("Login", Trouble::Hang);
    let (answer, ()) = tokio::join!(log_in(&fake, &right), async {
        support::eventually("the login hangs", LIMIT, async || match fake.login_attempts().len() {
            12 => Ok(()),
            count => Err(count),
        })
        .await;
        fake.sever();
    });
    assert!(answer.is_err());

    let attempts = fake.login_attempts();
    let outcomes: Vec<LoginOutcome> = attempts.iter().map(|attempt| attempt.outcome).collect();
    let soap = [Rejected, TurnedAway, TurnedAway, Unanswered, Unanswered, Unanswered, Unanswered, Unanswered];
    assert_eq!(outcomes, [&[Accepted, Rejected, Accepted, Rejected], soap.as_slice()].concat());
    assert!(attempts.iter().all(|attempt| attempt.user == fake.user()));
    let right: Vec<usize> = (0..attempts.len()).filter(|index| attempts[*index].is_right).collect();
    assert_eq!(right, [0, 2, 5, 6, 7, 8, 9, 10, 11], "whatever became of them");
    let over_rest: Vec<usize> = (0..attempts.len()).filter(|index| attempts[*index].is_rest).collect();
    assert_eq!(over_rest, [2, 3]);
    let most = support::fake_vcenter::most_against_an_account(&attempts, Duration::from_secs(200));
    assert_eq!(most, 8, "{attempts:?}");
}

#[tokio::test]
async fn a_fake_vcenter_that_is_down_refuses_connections_and_keeps_its_port() {
    let fake = FakeVcenter::start(Model::small()).await;
    let address = (fake.host(), fake.port());
    fake.stop_listening().await;
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(TcpListener::bind(address).await.is_err(), "nobody else gets it");
    fake.resume_listening().await;
    assert_eq!(log_in(&fake, &fake.password()).await.unwrap(), 200);
}
