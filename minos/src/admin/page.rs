//! `/`: a page that shows the server in a browser. Its files are in the program, and it loads nothing from elsewhere.

use hyper::{
    StatusCode,
    header::{self, HeaderValue},
};

use super::reply::{self, Reply};

/// The files by their path: type, text.
const FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/page.svg", "image/svg+xml", include_str!("page/page.svg")),
];

/// Only these files and this server's answers; no script within the page, and the page within no other.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file at `path`, if it is one of the page's.
pub(super) fn file(path: &str) -> Option<Reply> {
    let (_, content_type, text) = FILES.into_iter().find(|(name, ..)| *name == path)?;
    let mut reply = reply::with(StatusCode::OK, content_type, text.to_owned());
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Some(reply)
}
