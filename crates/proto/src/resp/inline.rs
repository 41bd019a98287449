//! Commands that a person types: a line of words, some of them in quotes.

/// Words of a line, at most. Redis has no such bound, but lines of at most 64 KiB.
const WORDS_MAX: usize = 1 << 15;

/// Writes the words of `line` to `out` as an array of bulk strings; nothing if there is no word.
///
/// # Errors
/// Redis' text: a quote is not closed, or something follows a closing quote at once.
pub fn rewrite_inline(line: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        let Some((word, behind)) = next_word(rest)? else { break };
        if words.len() == WORDS_MAX {
            return Err("too big inline request");
        }
        words.push(word);
        rest = behind;
    }
    if words.is_empty() {
        return Ok(());
    }
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(&word);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

const UNBALANCED: &str = "unbalanced quotes in request";

/// A word, if there is one, and the text behind it.
type Word<'a> = Option<(Vec<u8>, &'a [u8])>;

/// The word at the front of `text`.
fn next_word(text: &[u8]) -> Result<Word<'_>, &'static str> {
    if matches!(text.first(), None | Some(0)) {
        return Ok(None);
    }
    let mut word = Vec::new();
    let mut rest = text;
    loop {
        match rest {
            [] | [b' ' | b'\n' | b'\r' | b'\t' | 0, ..] => return Ok(Some((word, rest))),
            [quote @ (b'"' | b'\''), behind @ ..] => {
                rest = quoted(*quote, behind, &mut word)?;
                // A word ends with its closing quote.
                if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace() && *byte != 0x0b) {
                    return Err(UNBALANCED);
                }
                return Ok(Some((word, rest)));
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                rest = behind;
            }
        }
    }
}

/// Reads up to the closing `quote`; returns the text behind it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], &'static str> {
    loop {
        let (byte, behind) = match rest {
            [b'\\', b'\'', behind @ ..] if quote == b'\'' => (b'\'', behind),
            [b'\\', b'x', high, low, behind @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), behind)
            }
            [b'\\', escaped, behind @ ..] if quote == b'"' => (unescaped(*escaped), behind),
            [byte, behind @ ..] if *byte == quote => return Ok(behind),
            [] | [0, ..] => return Err(UNBALANCED),
            [byte, behind @ ..] => (*byte, behind),
        };
        word.push(byte);
        rest = behind;
    }
}

fn hex(digit: u8) -> u8 {
    (digit as char).to_digit(16).unwrap_or_default() as u8
}

fn unescaped(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> Result<String, &'static str> {
        let mut out = Vec::new();
        rewrite_inline(line.as_bytes(), &mut out)?;
        Ok(String::from_utf8_lossy(&out).replace("\r\n", "|"))
    }

    #[test]
    fn words_and_quotes() {
        for (line, array) in [
            ("", ""),
            ("  \t ", ""),
            ("PING", "*1|$4|PING|"),
            ("  get  key ", "*2|$3|get|$3|key|"),
            (r#"set k "a b\x21\n""#, "*3|$3|set|$1|k|$5|a b!\n|"),
            (r"set k 'it\'s \n'", r"*3|$3|set|$1|k|$7|it's \n|"),
            (r#"set k """#, "*3|$3|set|$1|k|$0||"),
        ] {
            assert_eq!(rewritten(line).as_deref(), Ok(array), "{line}");
        }
        for line in [r#"set "k"#, "set 'k", r#"set "k"x"#] {
            assert_eq!(rewritten(line), Err(UNBALANCED), "{line}");
        }
    }
}
