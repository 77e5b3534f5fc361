//! Metrics, health, and the live page over HTTP.
//!
//! There is no authentication: whoever reaches the address reads all of it, which names hosts and tells what they do, and has no data, samples,
//! keys or secrets. A browser on this machine also reaches loopback for sites elsewhere: the page and its figures refuse a name that is not
//! this machine's (DNS rebinding), and no header lets other sites read them.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::figures::Figures;
use super::metrics::{Sources, health, registry};

/// Connections at a time.
const CONNECTIONS: usize = 16;
/// Time for a request, and for all of a connection.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_secs(300);

const METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// The live page, which the Python package shows for clusters.
const PAGE: &str = include_str!("../../../../python/toroid/_live.html");
/// What the page may do: what stands in it, and asking the server that it came from.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Answers requests for as long as the runtime lasts.
pub async fn serve(listener: TcpListener, sources: Arc<Sources>) {
    let registry = Arc::new(registry(Arc::clone(&sources)));
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let is_local = listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (registry, sources) = (Arc::clone(&registry), Arc::clone(&sources));
        tokio::spawn(async move {
            let _permit = permit;
            let service = service_fn(|request| {
                let answer = answer(&request, is_local, &registry, &sources);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(16 << 10)
                .serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(MOST, connection).await {
                tracing::debug!(%error, "a connection for metrics broke");
            }
        });
    }
}

fn answer<B>(
    request: &Request<B>,
    is_local: bool,
    registry: &Registry,
    sources: &Sources,
) -> Response<String> {
    let (status, content, body) = match request.uri().path() {
        "/" | "/status" | "/metrics" | "/healthz"
            if !matches!(*request.method(), Method::GET | Method::HEAD) =>
        {
            let body = "expected GET\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, body)
        }
        "/" | "/status" if is_local && !is_own(request) => {
            let body = "expected the Host localhost or an IP address\n".to_owned();
            (StatusCode::MISDIRECTED_REQUEST, TEXT, body)
        }
        "/" => (StatusCode::OK, HTML, PAGE.to_owned()),
        "/status" => match serde_json::to_string(&Figures::of(sources).short()) {
            Ok(body) => (StatusCode::OK, JSON, body + "\n"),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
        },
        "/metrics" => {
            let mut page = String::new();
            match encode(&mut page, registry) {
                Ok(()) => (StatusCode::OK, METRICS, page),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
            }
        }
        "/healthz" => {
            let (ok, value) = health(sources);
            let status = if ok {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            (status, JSON, format!("{value}\n"))
        }
        _ => {
            let body = "expected /, /status, /metrics or /healthz\n".to_owned();
            (StatusCode::NOT_FOUND, TEXT, body)
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Whether the request's Host is this machine, or an address, which no site elsewhere can make lead here.
fn is_own<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(HOST);
    let Some(Ok(host)) = host.map(HeaderValue::to_str) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_elsewhere_is_not_this_machine() {
        let is = |host: &str| is_own(&Request::builder().header(HOST, host).body(()).unwrap());
        for own in [
            "localhost",
            "localhost:9464",
            "127.0.0.1:9464",
            "[::1]:9464",
            "10.0.0.1",
        ] {
            assert!(is(own), "{own}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:9464",
            "localhost.evil.example",
            "[",
            "::1",
        ] {
            assert!(!is(other), "{other}");
        }
    }
}
