//! The token that changes need, if there is one.

use std::path::Path;

use anyhow::{Context, ensure};
use hyper::{HeaderMap, header};

use crate::secret::warn_if_others_may_read;

/// The shortest token, in characters.
const CHARACTERS_MIN: usize = 16;

/// A token, of which only the hash is kept: two hashes are compared in constant time.
#[derive(Clone, Debug)]
pub(crate) struct Token(blake3::Hash);

impl Token {
    /// Reads the file that --admin-token-file names.
    ///
    /// # Errors
    /// It cannot be read, or has no token or a short one.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        warn_if_others_may_read("--admin-token-file", path)?;
        Ok(Self(blake3::hash(read("--admin-token-file", path)?.as_bytes())))
    }

    /// True if a request has it.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut fields = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(field), None) = (fields.next(), fields.next()) else { return false };
        let token = field.to_str().ok().and_then(|field| {
            let (scheme, token) = field.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim_start_matches(' '))
        });
        token.is_some_and(|token| blake3::hash(token.as_bytes()) == self.0)
    }
}

/// The token in the file that `option` names.
///
/// # Errors
/// It cannot be read, or has no token or a short one.
pub(crate) fn read(option: &str, path: &Path) -> anyhow::Result<String> {
    let name = || format!("{option} {}", path.display());
    let text = std::fs::read_to_string(path).with_context(name)?;
    let token = text.trim_end_matches(['\r', '\n']);
    ensure!(
        token.len() >= CHARACTERS_MIN && token.bytes().all(|byte| byte.is_ascii_graphic()),
        "{}: expected one line of at least {CHARACTERS_MIN} visible characters, as `minos secret` prints",
        name()
    );
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn only_the_token_itself_is_taken() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let token = Token::read(path.path()).unwrap();
        let is_in = |fields: &[&'static str]| {
            let mut headers = HeaderMap::new();
            fields.iter().for_each(|field| {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(field));
            });
            token.is_in(&headers)
        };
        assert!(is_in(&["Bearer 0123456789abcdef"]) && is_in(&["bearer  0123456789abcdef"]));
        let wrong = [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdee",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
        ];
        for field in wrong {
            assert!(!is_in(&[field]), "{field}");
        }
        assert!(!is_in(&[]) && !is_in(&["Bearer 0123456789abcdef"; 2]));
        for text in ["", "short\n", "0123456789abcdef\n0123456789abcdef\n", "0123456789 abcdef"] {
            std::fs::write(&path, text).unwrap();
            assert!(Token::read(path.path()).is_err(), "{text}");
        }
    }
}
