//! Options from a TOML file: each key is the name of an option.
//!
//! The file is turned into arguments and parsed by the declaration of the command line, so that both accept
//! the same options and values and give the same errors.

use std::{ffi::OsString, path::Path};

use anyhow::{Context, bail};
use clap::{CommandFactory as _, Parser};
use toml::Value;

use super::ServeOptions;

/// Parses options as `minos serve` does.
#[derive(Parser)]
#[command(name = "minos serve", no_binary_name = true)]
struct Reader {
    #[command(flatten)]
    options: ServeOptions,
}

/// The options of the file at `path` and of `arguments`; `arguments` win.
pub(crate) fn merged(path: &Path, arguments: &[OsString]) -> anyhow::Result<ServeOptions> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("--config {name}"))?;
    let table: toml::Table = text.parse().with_context(|| format!("--config {name}"))?;
    let mut all = arguments_of(&table, arguments).with_context(|| format!("--config {name}"))?;
    all.extend_from_slice(arguments);
    let reader = Reader::try_parse_from(all).map_err(|error| anyhow::anyhow!("--config {name}: {error}"))?;
    Ok(reader.options)
}

/// One argument for each value in `table` whose option is not in `given`.
fn arguments_of(table: &toml::Table, given: &[OsString]) -> anyhow::Result<Vec<OsString>> {
    let mut arguments = Vec::new();
    for (key, value) in table {
        if key == "config" {
            bail!("`config` cannot name another file");
        }
        let option = format!("--{key}");
        if is_given(&option, given) {
            continue;
        }
        match value {
            Value::Boolean(is_on) if stands_alone(key) => {
                arguments.extend(is_on.then(|| OsString::from(option)));
            }
            Value::Array(values) if values.is_empty() => bail!("`{key}`: the list is empty"),
            _ => {
                let texts = texts(key, value)?;
                arguments.extend(texts.iter().map(|text| OsString::from(format!("{option}={text}"))));
            }
        }
    }
    Ok(arguments)
}

/// True if the option needs no value.
fn stands_alone(key: &str) -> bool {
    let command = Reader::command();
    let option = command.get_arguments().find(|option| option.get_long() == Some(key));
    option.is_some_and(|option| {
        let takes_none = !option.get_action().takes_values();
        takes_none || option.get_num_args().is_some_and(|values| values.min_values() == 0)
    })
}

fn is_given(option: &str, given: &[OsString]) -> bool {
    given.iter().filter_map(|argument| argument.to_str()).any(|argument| {
        argument.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

/// The values of a key, as on the command line.
fn texts(key: &str, value: &Value) -> anyhow::Result<Vec<String>> {
    Ok(match value {
        Value::String(text) => vec![text.clone()],
        Value::Integer(number) => vec![number.to_string()],
        Value::Float(number) => vec![number.to_string()],
        Value::Boolean(true) => vec!["on".to_owned()],
        Value::Boolean(false) => vec!["off".to_owned()],
        Value::Array(values) => {
            values.iter().map(|value| texts(key, value)).collect::<Result<Vec<_>, _>>()?.concat()
        }
        Value::Datetime(_) | Value::Table(_) => {
            bail!("`{key}`: expected text, a number, a switch or a list of them")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, arguments: &[&str]) -> anyhow::Result<ServeOptions> {
        let path = tempfile::NamedTempFile::new()?.into_temp_path();
        std::fs::write(&path, file)?;
        merged(&path, &arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_key_is_an_option() {
        let file = "memory = \"64m\"\nworkers = 3\nsteal = false\npercentile = 99.9\nmemcached = [\"127.0.0.1:1\", \"unix:/x\"]\n";
        let options = read(file, &[]).unwrap();
        assert_eq!(options.memory.unwrap().0, 64 << 20);
        assert_eq!(options.workers(), 3);
        assert_eq!(options.percentile, 99.9);
        assert_eq!(options.memcached.len(), 2);
        assert!(!options.configs().unwrap().0.steal);
    }

    #[test]
    fn an_option_without_a_value_is_a_switch() {
        let options = read("flash = \"/f\"\nflash-format = true\nnative = true\n", &[]).unwrap();
        assert!(options.flash.flash_format && options.native.native.is_some());
        let options = read("flash-format = false\nnative = false\n", &[]).unwrap();
        assert!(!options.flash.flash_format && options.native.native.is_none());
        assert!(read("memcached = []\n", &[]).is_err());
    }

    #[test]
    fn the_command_line_wins() {
        let file = "memory = \"64m\"\nmemcached = \"127.0.0.1:1\"\n";
        let options = read(file, &["--memory=1g", "--memcached", "127.0.0.1:2"]).unwrap();
        assert_eq!(options.memory.unwrap().0, 1 << 30);
        assert_eq!(options.memcached, ["127.0.0.1:2".parse().unwrap()]);
    }

    #[test]
    fn errors_name_option_value_and_what_is_allowed() {
        let error = read("dispatch = \"fastest\"\n", &[]).unwrap_err().to_string();
        for part in ["--dispatch", "fastest", "size-aware", "keyhash"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(read("memroy = \"1g\"\n", &[]).unwrap_err().to_string().contains("--memroy"));
        assert!(read("memory = 1979-05-27\n", &[]).is_err());
    }
}
