//! Tests with answers that are cut off, slow, huge, compressed, or missing. Each gives the expected error within the
//! time limit.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::{Error, Method, Request};
use super::server::{Reply, TestServer};

fn get() -> Request {
    Request::new(Method::GET, "/sdk", "CurrentTime", Duration::from_secs(20))
}

fn head(rest: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes()
}

fn gzip(times: usize) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    let block = vec![0; 1 << 20];
    for _ in 0..times {
        packer.write_all(&block).unwrap();
    }
    packer.finish().unwrap()
}

fn packed(body: &[u8], promised: usize) -> Vec<u8> {
    [&head(&format!("Content-Encoding: gzip\r\nContent-Length: {promised}\r\n\r\n")), body].concat()
}

#[tokio::test]
async fn an_answer_that_is_not_whole_is_an_error_and_asked_for_again_only_before_its_head() {
    let packed_answer = gzip(1);
    let half = packed_answer.get(..packed_answer.len() / 2).unwrap().to_vec();
    let cases: [(&str, Vec<u8>, usize); 9] = [
        ("no byte", Vec::new(), 2),
        ("cut in the first line", b"HTTP/1.1 20".to_vec(), 2),
        ("cut in the headers", head("Content-Type: text/x"), 2),
        ("no byte of the body", head("Content-Length: 10\r\n\r\n"), 1),
        ("cut in the body", head("Content-Length: 10\r\n\r\nhello"), 1),
        ("cut in a chunk", head("Transfer-Encoding: chunked\r\n\r\na\r\nhello"), 1),
        ("cut between chunks", head("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), 1),
        ("packed, cut although the length fits", packed(&half, half.len()), 1),
        ("packed, cut", packed(&half, packed_answer.len()), 1),
    ];
    for (name, bytes, attempts) in cases {
        let server = TestServer::start(move |_| Reply::Raw(bytes.clone())).await;
        let error = server.client().send(get()).await.unwrap_err();
        assert!(matches!(error, Error::Broken { .. }), "{name}: {error:?}");
        assert!(error.is_transient(), "{name}");
        assert_eq!(server.received().len(), attempts, "{name}");
    }
}

#[tokio::test]
async fn what_is_no_http_is_an_error_at_once() {
    let many: String = (0..200).map(|number| format!("X-{number}: a\r\n")).collect();
    let cases: [(&str, Vec<u8>); 6] = [
        ("another protocol", b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec()),
        ("noise", vec![0xff; 600]),
        ("a length that is none", head("Content-Length: many\r\n\r\n")),
        ("two lengths", head("Content-Length: 1\r\nContent-Length: 2\r\n\r\nab")),
        ("headers that are too many", head(&format!("{many}\r\n"))),
        ("packed, but not", packed(b"<html>", 6)),
    ];
    for (name, bytes) in cases {
        let server = TestServer::start(move |_| Reply::Raw(bytes.clone())).await;
        let error = server.client().send(get()).await.unwrap_err();
        assert!(matches!(error, Error::Broken { .. }), "{name}: {error:?}");
        assert_eq!(server.received().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn answers_without_end_and_packed_ones_without_measure_stop_at_the_limit() {
    let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat();
    let cases: [(&str, Reply); 3] = [
        ("chunks for ever", Reply::Endless(head("Transfer-Encoding: chunked\r\n\r\n"), chunk)),
        ("no length", Reply::Endless(head("\r\n"), vec![b'x'; 0x10000])),
        (
            "64 MiB of zeros in 64 KiB",
            Reply::Raw({
                let bomb = gzip(64);
                packed(&bomb, bomb.len())
            }),
        ),
    ];
    for (name, reply) in cases {
        let server = TestServer::start(move |_| reply.clone()).await;
        let mut limited = get();
        limited.max_bytes = 1 << 20;
        let error = server.client().send(limited).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge(_, 0x10_0000)), "{name}: {error:?}");
        assert_eq!(server.received().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn headers_without_end_are_given_up() {
    let line = format!("X-Filler: {}\r\n", "x".repeat(8000)).into_bytes();
    let server = TestServer::start(move |_| Reply::Endless(head(""), line.clone())).await;
    let error = server.client().send(get()).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn slow_bytes_do_not_stretch_the_time_limit() {
    let slow_body = [head("Content-Length: 1000\r\n\r\n"), vec![b'x'; 1000]].concat();
    for (name, bytes) in [("head", head(&"X: y\r\n".repeat(90))), ("body", slow_body)] {
        let server = TestServer::start(move |_| Reply::Drip(bytes.clone())).await;
        let mut limited = get();
        limited.timeout = Duration::from_millis(300);
        let began = Instant::now();
        let error = server.client().send(limited).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{name}: {error:?}");
        // Each byte arrives within the time limit, but all bytes together would take 20 s.
        assert!(began.elapsed() < Duration::from_secs(5), "{name}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_page_in_place_of_an_answer_comes_back_as_what_it_is() {
    for status in [200, 502, 503] {
        let server = TestServer::start(move |_| Reply::html(status)).await;
        let client = server.client();
        let response = client.send(get()).await.unwrap();
        assert_eq!((response.status, response.media_type().as_str()), (status, "text/html"));
        let error = client.status_error("CurrentTime", &response);
        let expected = format!(
            "CurrentTime at {}: answered with HTTP status {status} and a body of type text/html",
            client.endpoint()
        );
        assert_eq!((error.to_string(), error.is_transient()), (expected, status != 200));
    }
}

#[tokio::test]
async fn connections_that_are_forgotten_serve_no_further_request() {
    let server = TestServer::start(|_| Reply::json(200, "{}")).await;
    let client = server.client();
    for connections in [1, 1, 2, 2] {
        assert_eq!(client.send(get()).await.unwrap().status, 200);
        assert_eq!(server.connections(), connections);
        if (connections, server.received().len()) == (1, 2) {
            client.clone().forget_connections().unwrap();
        }
    }
}

#[tokio::test]
async fn a_pooled_connection_that_died_costs_a_repeatable_request_nothing() {
    for (method, is_repeatable) in [(Method::GET, true), (Method::POST, true), (Method::POST, false)] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        // The server closes the first connection at its second request.
        let server = TestServer::start(move |_| match counter.fetch_add(1, Ordering::SeqCst) {
            1 => Reply::Close,
            _ => Reply::json(200, "{}"),
        })
        .await;
        let client = server.client();
        let request = Request { method: method.clone(), repeatable: is_repeatable, ..get() };
        assert_eq!(client.send(request.clone()).await.unwrap().status, 200);
        assert_eq!(server.connections(), 1);
        let second = client.send(request).await;
        assert_eq!(second.is_ok(), is_repeatable, "{method:?}: {second:?}");
        assert_eq!(server.received().len(), if is_repeatable { 3 } else { 2 });
    }
}
