//! Any client may send anything to the secure port. Its use of resources is limited, and the probes are answered in the
//! meantime.

use std::time::Instant;

use hyper::body::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::client::TlsStream;

use super::*;

/// Opens TLS to the server, with this protocol.
async fn tls(server: &Served, protocol: &[u8]) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(server.address).await.unwrap();
    over_tls(server, tcp, protocol).await.unwrap()
}

/// Reads until the server closes the connection.
async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset delivers no more data either.
    let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut bytes)).await.expect("the server closes");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn assert_healthy(server: &Served, after: &str) {
    let answer = client(server).get(format!("https://{}/healthz", server.address)).send().await;
    assert_eq!(answer.unwrap_or_else(|error| panic!("{after}: {error:?}")).status().as_u16(), 200, "{after}");
}

#[tokio::test]
async fn what_is_no_tls_is_turned_away() {
    let server = served().await;
    // A hello of TLS 1.1: versions 3.1 outside and 3.2 inside, a random value, no session, AES-CBC, no compression.
    let mut old_hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    old_hello.extend([7; 32]);
    old_hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let cases: [(&str, Vec<u8>); 5] = [
        ("plain HTTP", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        ("noise", (0..=255).cycle().take(70_000).collect()),
        ("a record that claims more than there may be", vec![0x16, 3, 1, 0xff, 0xff, 1, 2, 3]),
        ("TLS 1.1", old_hello),
        ("half a record, then the end", vec![0x16, 3, 1, 0, 45, 1]),
    ];
    for (case, bytes) in cases {
        let mut tcp = TcpStream::connect(server.address).await.unwrap();
        // The server may close the connection during the write.
        let _ = tcp.write_all(&bytes).await;
        let _ = tcp.shutdown().await;
        let said = rest(&mut tcp).await;
        assert!(said.len() < 100 && !said.contains("HTTP/1.1 200"), "{case}: {said:?}");
        assert_healthy(&server, case).await;
    }
}

#[tokio::test]
async fn requests_that_are_too_large_are_refused() {
    let server = served().await;
    let large = "x".repeat(1 << 20);
    let cases = [
        ("a header of 1 MiB", format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX: {large}\r\n\r\n")),
        ("a path of 1 MiB", format!("GET /{large} HTTP/1.1\r\nHost: a\r\n\r\n")),
        ("many headers", format!("GET /healthz HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(5_000))),
    ];
    for (case, request) in cases {
        let mut stream = tls(&server, b"http/1.1").await;
        let _ = stream.write_all(request.as_bytes()).await;
        let said = rest(&mut stream).await;
        let refused = ["HTTP/1.1 431 ", "HTTP/1.1 414 ", "HTTP/1.1 400 "];
        assert!(said.is_empty() || refused.iter().any(|status| said.starts_with(status)), "{case}: {said}");
        assert_healthy(&server, case).await;
    }
}

#[tokio::test]
async fn a_body_is_not_waited_for() {
    let server = served().await;
    let mut stream = tls(&server, b"http/1.1").await;
    let head = b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbegin";
    stream.write_all(head).await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 405 "), "{said}");
}

/// Contradictory lengths would let old clients and proxies smuggle one request inside another.
#[tokio::test]
async fn lengths_that_contradict_each_other_are_refused() {
    let server = served().await;
    let mut stream = tls(&server, b"http/1.1").await;
    let both = "POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc";
    stream.write_all(both.as_bytes()).await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
}

/// Connections without data, with half a handshake, or with TLS and no request. The server holds them until their time
/// limits, so it closes further connections at once.
#[tokio::test]
async fn a_full_port_closes_further_connections_and_recovers() {
    let server = served().await;
    let mut used = tls(&server, b"http/1.1").await;
    assert!(is_answered(&mut used).await);
    let (mut silent, mut half, mut unused) = (Vec::new(), Vec::new(), Vec::new());
    // The maximum is 256 connections.
    for number in 1..256 {
        let mut tcp = TcpStream::connect(server.address).await.unwrap();
        match number % 7 {
            0 => {
                tcp.write_all(&[0x16, 3, 1, 0, 45, 1]).await.unwrap();
                half.push(tcp);
            }
            1 => unused.push(over_tls(&server, tcp, b"http/1.1").await.unwrap()),
            _ => silent.push(tcp),
        }
    }
    for _ in 0..200 {
        let mut further = TcpStream::connect(server.address).await.unwrap();
        assert_eq!(rest(&mut further).await, "");
    }
    assert!(is_answered(&mut used).await, "a connection is not closed to make room");
    drop((silent, half, unused));
    support::eventually("the port has room again", LONG, async || {
        let answer = client(&server).get(format!("https://{}/healthz", server.address)).send().await;
        answer.map(|answer| assert_eq!(answer.status().as_u16(), 200)).map_err(|error| format!("{error:?}"))
    })
    .await;
}

/// Whether a probe over this connection is answered.
async fn is_answered(stream: &mut TlsStream<TcpStream>) -> bool {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        if stream.read_buf(&mut answer).await.unwrap() == 0 {
            return false;
        }
    }
    answer.starts_with(b"HTTP/1.1 200 ")
}

type Http2 = hyper::client::conn::http2::SendRequest<Empty<Bytes>>;

async fn http2(server: &Served) -> (Http2, tokio::task::JoinHandle<hyper::Result<()>>) {
    let stream = TokioIo::new(tls(server, b"h2").await);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn request(path: &str, token: Option<&str>) -> http::Request<Empty<Bytes>> {
    let mut request = http::Request::get(format!("https://localhost{path}"));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn nobody_known_has_a_second_request_on_one_http2_connection() {
    let server = served().await;
    let (mut sender, connection) = http2(&server).await;
    assert_eq!(sender.send_request(request("/metrics", None)).await.unwrap().status().as_u16(), 403);
    tokio::time::timeout(LONG, connection).await.expect("the server ends the connection").unwrap().unwrap();

    let (mut sender, connection) = http2(&server).await;
    for _ in 0..3 {
        sender.ready().await.unwrap();
        assert_eq!(sender.send_request(request("/metrics", Some("good"))).await.unwrap().status().as_u16(), 200);
    }
    assert!(!connection.is_finished(), "whoever is known goes on");
}

/// Rapid reset (CVE-2023-44487): requests that are cancelled immediately.
#[tokio::test]
async fn requests_that_are_taken_back_at_once_end_the_connection() {
    let server = served().await;
    let mut stream = tls(&server, b"h2").await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    // `:method GET`, `:scheme https`, `:path /`, and an authority with one letter.
    let headers = [0x82, 0x87, 0x84, 0x41, 0x01, b'a'];
    let (mut sent, mut received) = (0, Vec::new());
    let mut buffer = [0; 4096];
    let flood = async {
        for stream_id in (1_u32..).step_by(2) {
            let mut pair = frame(1, 5, stream_id, &headers);
            pair.extend(frame(3, 0, stream_id, &8_u32.to_be_bytes()));
            if stream.write_all(&pair).await.is_err() {
                break;
            }
            sent += 1;
            while let Ok(read) = tokio::time::timeout(Duration::from_micros(10), stream.read(&mut buffer)).await {
                match read {
                    Ok(0) | Err(_) => return,
                    Ok(length) => received.extend_from_slice(&buffer[..length]),
                }
            }
        }
    };
    tokio::time::timeout(LONG, flood).await.expect("the server ends it");
    println!("{sent} requests were taken back before the server ended the connection");
    assert!(received.windows(2).any(|bytes| bytes[1] == 7), "a GOAWAY frame in {received:?}");
    assert_healthy(&server, "rapid reset").await;
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header with endless continuation frames (CVE-2024-27316).
#[tokio::test]
async fn a_header_without_an_end_ends_the_http2_connection() {
    let server = served().await;
    let mut stream = tls(&server, b"h2").await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    stream.write_all(&frame(1, 0, 1, &[0x82, 0x87, 0x84])).await.unwrap();
    // A literal header without indexing: name `x`, value with 100 letters.
    let mut header = vec![0, 1, b'x', 100];
    header.extend([b'y'; 100]);
    let block: Vec<u8> = header.iter().copied().cycle().take(header.len() * 150).collect();
    let mut sent = 0;
    let flood = async {
        while stream.write_all(&frame(9, 0, 1, &block)).await.is_ok() {
            sent += block.len();
            if sent > 1 << 30 {
                panic!("a header of a GiB was taken");
            }
        }
    };
    tokio::time::timeout(LONG, flood).await.expect("the server ends it");
    println!("{sent} bytes of one header were sent before the server ended the connection");
    assert_healthy(&server, "endless header").await;
}

/// Answers that cannot be sent, because the client has a window of zero bytes. The connection ends soon.
#[tokio::test]
async fn answers_that_nobody_reads_end_the_connection_of_whoever_is_not_known() {
    let server = served().await;
    let mut stream = tls(&server, b"h2").await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    // INITIAL_WINDOW_SIZE is 4.
    stream.write_all(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])).await.unwrap();
    let path = b"/healthz?verbose&exclude=%7F";
    // As in the other tests, and a literal `:path` (its name has number 4) with these bytes.
    let mut headers = vec![0x82, 0x87, 0x41, 0x01, b'a', 0x04, u8::try_from(path.len()).unwrap()];
    headers.extend(path);
    for stream_id in [1, 3, 5, 7] {
        stream.write_all(&frame(1, 5, stream_id, &headers)).await.unwrap();
    }
    let start = Instant::now();
    let mut received = Vec::new();
    let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut received)).await.expect("the server ends it");
    println!("the connection was ended after {:?}", start.elapsed());
    // The limit for a connection of an authenticated client is 20 s.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert!(received.windows(2).any(|bytes| bytes[1] == 7), "a GOAWAY frame in {received:?}");
    assert_healthy(&server, "a window of nothing").await;
}

/// A rejected client must connect again. Repeated wrong certificates cost the client more than the server.
#[tokio::test]
async fn whoever_is_refused_has_one_request_on_a_connection() {
    let server = served().await;
    let mut stream = tls(&server, b"http/1.1").await;
    let refused = "GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer bad\r\n\r\n";
    stream.write_all(refused.as_bytes()).await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 401 ") && said.ends_with("Unauthorized"), "{said}");

    let (mut sender, connection) = http2(&server).await;
    assert_eq!(sender.send_request(request("/metrics", Some("bad"))).await.unwrap().status().as_u16(), 401);
    tokio::time::timeout(LONG, connection).await.expect("the server ends the connection").unwrap().unwrap();
}

#[tokio::test]
async fn whoever_asks_for_the_header_only_gets_no_body_over_http2() {
    let server = served().await;
    let mut stream = tls(&server, b"h2").await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    // `:method HEAD` (the name has number 2), `:scheme https`, an authority with one letter, `:path /livez`.
    let mut headers = vec![0x02, 4];
    headers.extend(b"HEAD");
    headers.extend([0x87, 0x41, 0x01, b'a', 0x04, 6]);
    headers.extend(b"/livez");
    stream.write_all(&frame(1, 5, 1, &headers)).await.unwrap();
    let mut received = Vec::new();
    let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut received)).await.expect("nobody who is known is left");
    let mut kinds = Vec::new();
    let mut rest = &received[..];
    while let [a, b, c, kind, flags, id @ ..] = rest {
        let (id, after) = id.split_at(4);
        if id == [0, 0, 0, 1] {
            kinds.push((*kind, flags & 1));
        }
        rest = &after[usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c)..];
    }
    assert_eq!(kinds, [(1, 1)], "one HEADERS frame that ends the stream in {received:?}");
    let answer = client(&server).head(format!("https://{}/livez", server.address)).send().await.unwrap();
    assert_eq!(answer.headers()["content-length"], "2");
}
