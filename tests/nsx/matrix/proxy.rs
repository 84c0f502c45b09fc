//! Faults of a proxy on the way to the manager.

use ccm::clients::nsx::Kind;
use support::connect_proxy::Tunnel;
use support::fake_nsx::Behaviour;

use super::{Mode, behaving, only_own_changes, prove_all, scene, works};
use crate::world::ROUTES;

#[test]
fn a_proxy_that_does_not_connect_makes_nothing_gone_and_costs_no_login() {
    let rows = [
        Tunnel::Refuse("HTTP/1.1 407 Proxy Authentication Required"),
        Tunnel::Refuse("HTTP/1.1 403 Forbidden"),
        Tunnel::Refuse("HTTP/1.1 404 Not Found"),
        Tunnel::Refuse("HTTP/1.1 502 Bad Gateway"),
        Tunnel::Refuse("HTTP/1.1 503 Service Unavailable"),
        Tunnel::Hang,
        Tunnel::Close,
    ];
    prove_all(behaving(rows), prove);
}

async fn prove((tunnel, (manager, behaviour)): (Tunnel, (&str, Behaviour))) {
    let name = format!("{tunnel:?}, {manager}");
    for loses_session in [false, true] {
        let world = scene(behaviour, Mode::Proxied).await;
        let (seen, proxy) = (world.nsx.history().len(), world.proxy.as_ref().unwrap());
        assert!(proxy.asked().iter().all(|line| line.starts_with("CONNECT fake.test:")), "{:?}", proxy.asked());
        proxy.set(tunnel);
        // Otherwise open connections would still be used.
        world.nsx.sever();
        if loses_session {
            world.nsx.kill_sessions();
        }
        world.nsx.reset_counts();
        assert_eq!(world.list().await.unwrap_err().kind, Kind::Unavailable, "{name}");
        assert_eq!(world.get(&format!("{ROUTES}/r1")).await.unwrap_err().kind, Kind::Unavailable, "{name}");
        assert_eq!(world.patch("r0").await.unwrap_err().kind, Kind::Unavailable, "{name}: nothing was sent");
        assert_eq!(world.delete("r0").await.unwrap_err().kind, Kind::Unavailable, "{name}: nothing was sent");
        assert_eq!(world.nsx.counts().total(), 0, "{name}");
        only_own_changes(&world, seen, &name);
        proxy.set(Tunnel::Open);
        works(&world, &name).await;
        assert_eq!(world.logins(), u32::from(loses_session), "{name}");
        assert_eq!(world.stop().await.counts().sessions, 0, "{name}");
    }
}
