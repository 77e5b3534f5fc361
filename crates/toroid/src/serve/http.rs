//! Metrics and health over HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

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

/// Answers requests for as long as the runtime lasts.
pub async fn serve(listener: TcpListener, sources: Arc<Sources>) {
    let registry = Arc::new(registry(Arc::clone(&sources)));
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
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
                let answer = answer(
                    &request,
                    || {
                        let mut page = String::new();
                        encode(&mut page, &registry).map(|()| page)
                    },
                    || health(&sources),
                );
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
    metrics: impl FnOnce() -> Result<String, std::fmt::Error>,
    health: impl FnOnce() -> (bool, serde_json::Value),
) -> Response<String> {
    let (status, content, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match metrics() {
            Ok(page) => (StatusCode::OK, METRICS, page),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
        },
        (&Method::GET | &Method::HEAD, "/healthz") => {
            let (ok, value) = health();
            let status = if ok {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            (status, JSON, format!("{value}\n"))
        }
        (_, "/metrics" | "/healthz") => {
            let body = "expected GET\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, body)
        }
        _ => {
            let body = "expected /metrics or /healthz\n".to_owned();
            (StatusCode::NOT_FOUND, TEXT, body)
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let methods = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, methods);
    }
    response
}
