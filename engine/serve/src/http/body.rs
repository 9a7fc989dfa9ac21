//! Bodies of requests: JSON, of a bounded size, within a bounded time.

use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Body as _;
use hyper::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;

use super::errors::ApiError;
use super::limits::Limits;

/// Reads a request's body.
///
/// # Errors
/// It is not JSON, too large, too slow, or a field does not fit; the field is named.
pub(super) async fn read<T: DeserializeOwned>(request: Request, limits: &Limits) -> Result<T, ApiError> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    // A web page may send other types to another server without asking it first.
    if !media_type.trim().eq_ignore_ascii_case("application/json") {
        let message = "send the body as `Content-Type: application/json`";
        return Err(ApiError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let time = limits.body_timeout();
    let bytes = tokio::time::timeout(time, whole(request.into_body(), limits.body_bytes())).await.map_err(|_| {
        let message = format!("the body did not come within {} s", time.as_secs());
        ApiError::refused(StatusCode::REQUEST_TIMEOUT, message)
    })??;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.inner();
        if inner.is_data() && path != "." {
            ApiError::invalid(path.clone(), format!("{path}: {inner}"))
        } else {
            ApiError::malformed(format!("the body is not a request in JSON: {inner}"))
        }
    })?;
    json.end().map_err(|error| ApiError::malformed(format!("the body is not one JSON object: {error}")))?;
    Ok(value)
}

/// All bytes, if they are not too many.
async fn whole(mut body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let mut too_large = body.size_hint().lower() > limit as u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::malformed(format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        too_large |= bytes.len() + data.len() > limit;
        // The rest is read and dropped: a client that is still sending would not see the answer.
        if too_large {
            bytes = Vec::new();
        } else {
            bytes.extend_from_slice(&data);
        }
    }
    if too_large {
        let message = format!("the body is larger than {} MiB: send fewer prompts at once", limit >> 20);
        return Err(ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    Ok(bytes)
}
