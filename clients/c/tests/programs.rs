//! C programs against a server: built with the system's compiler, with the shared and the static library.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use minos_testkit::{Server, forget_package, skip};
use tempfile::TempDir;

const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder with `minos`, `xtask`, `libminos.so` and `libminos.a`, all of which are built first.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        // All packages and a test, so that dependencies have the same features as under `cargo test
        // --workspace`.
        build.args([
            "build",
            "-q",
            "--workspace",
            "--lib",
            "--bin",
            "minos",
            "--bin",
            "xtask",
            "--test",
            "programs",
        ]);
        // Set for test programs, which report their times; with it, build scripts would run again.
        forget_package(build.current_dir(folder()).env_remove("RUSTC_BOOTSTRAP"));
        // The tests are in target/debug/deps, or in debug/deps of another target folder.
        let tests = env::current_exe().unwrap();
        let built = tests.ancestors().nth(2).unwrap().to_owned();
        build.env("CARGO_TARGET_DIR", built.parent().unwrap());
        assert!(build.status().unwrap().success());
        built
    })
}

/// The output of `cargo xtask install-c`.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = built().join("client-c");
        let mut install = Command::new(built().join("xtask"));
        install.args(["install-c", "--prefix"]).arg(&prefix).arg("--libraries").arg(built());
        succeed(&mut install);
        prefix
    })
}

/// Compiler flags, as users of the installed library get them.
fn flags(wanted: &[&str]) -> Vec<String> {
    let mut config = Command::new("pkg-config");
    config.args(wanted).arg("minos").env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    succeed(&mut config).split_whitespace().map(str::to_owned).collect()
}

/// A server of the native protocol, and its address.
fn server(options: &[&str]) -> (Server, String) {
    let program = env::var_os("MINOS_TEST_SERVER").map_or_else(|| built().join("minos"), PathBuf::from);
    let native = ["--native", "127.0.0.1:0", "--workers", "2", "--memory", "64m", "--poll", "sleep"];
    let started = Server::minos(&program, &[&native, options].concat());
    let mut server = started.unwrap_or_else(|error| panic!("{error}"));
    let address = server.native_address().unwrap_or_else(|error| panic!("{error}"));
    (server, address.to_string())
}

#[derive(Clone, Copy)]
enum Library {
    Shared,
    Static,
}

/// Builds `source` into `out` with all warnings.
fn compile(compiler: &str, source: &str, out: &Path, library: Library) {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g"]).args(flags(&["--cflags"]));
    command.arg(folder().join(source)).arg("-o").arg(out);
    match library {
        Library::Shared => command.args(flags(&["--libs"])),
        Library::Static => {
            let needed = flags(&["--libs", "--static"]).into_iter().filter(|flag| flag != "-lminos");
            command.arg(installed().join("lib/libminos.a")).args(needed)
        }
    };
    succeed(&mut command);
}

/// Runs a command, which must succeed.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

fn run(source: &str, library: Library, arguments: &[&str]) -> String {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("program");
    compile("cc", source, &program, library);
    succeed(Command::new(program).args(arguments).env("LD_LIBRARY_PATH", libraries()))
}

fn libraries() -> PathBuf {
    installed().join("lib")
}

#[test]
fn every_function_does_what_the_header_says() {
    let (_server, address) = server(&[]);
    assert_eq!(run("tests/operations.c", Library::Shared, &[&address]), "all is well\n");
}

#[test]
fn the_static_library_speaks_sealed() {
    let folder = TempDir::new().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let (_server, address) = server(&["--native-secret-file", secret.to_str().unwrap()]);
    assert_eq!(run("tests/operations.c", Library::Static, &[&address, SECRET]), "all is well\n");
}

#[test]
fn a_check_that_fails_is_noticed() {
    let (_server, address) = server(&["--native-window", "4"]);
    // A secret that the server does not accept.
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("program");
    compile("cc", "tests/operations.c", &program, Library::Shared);
    let mut wrong = Command::new(program);
    let output = wrong.args([&address, SECRET]).env("LD_LIBRARY_PATH", libraries()).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("minos_connect"), "{output:?}");
}

#[test]
fn the_example_says_hello() {
    let (_server, address) = server(&[]);
    assert_eq!(run("examples/hello.c", Library::Shared, &[&address]), "hello\n");
}

#[test]
fn a_loop_drives_operations() {
    let (_server, address) = server(&[]);
    assert_eq!(run("tests/steps.c", Library::Shared, &[&address]), "all is well\n");
    assert_eq!(run("examples/loop.c", Library::Shared, &[&address]), "1000 visits\n");
}

#[test]
fn children_of_a_fork_draw_numbers_of_their_own() {
    assert_eq!(run("tests/fork.c", Library::Shared, &[]), "all is well\n");
}

/// A program must run with a later library of the same major version.
#[test]
fn programs_ask_for_the_library_by_its_soname() {
    let (_server, address) = server(&[]);
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("program");
    compile("cc", "examples/hello.c", &program, Library::Shared);
    std::fs::copy(libraries().join("libminos.so"), folder.path().join("libminos.so.0")).unwrap();
    let mut hello = Command::new(program);
    assert_eq!(succeed(hello.arg(address).env("LD_LIBRARY_PATH", folder.path())), "hello\n");
}

#[test]
fn a_package_is_installed_under_another_root() {
    let root = TempDir::new().unwrap();
    let mut install = Command::new(built().join("xtask"));
    install.args(["install-c", "--prefix", "/usr", "--destdir"]).arg(root.path());
    succeed(install.arg("--libraries").arg(built()));
    let config = std::fs::read_to_string(root.path().join("usr/lib/pkgconfig/minos.pc")).unwrap();
    assert!(config.starts_with("prefix=/usr\n") && !config.contains('@'), "{config}");
    assert_eq!(flags(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
}

#[test]
fn the_header_is_one_of_old_c_and_of_cpp() {
    let source = TempDir::new().unwrap();
    for (compiler, name, standard) in [("cc", "a.c", "-std=c99"), ("c++", "a.cc", "-std=c++11")] {
        let path = source.path().join(name);
        std::fs::write(&path, "#include <minos.h>\n").unwrap();
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Werror", standard, "-I"]);
        command.arg(folder().join("include")).arg(path);
        match command.output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => skip(format!("{compiler}: {error}")),
        }
    }
}

#[test]
fn the_header_declares_what_the_library_has() {
    let header = std::fs::read_to_string(folder().join("include/minos.h")).unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder().join("src")).unwrap() {
        let source = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let words: Vec<_> = source.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        names.extend(words.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1].to_owned()));
        names.extend(source.lines().filter_map(|line| {
            // Functions that a macro defines.
            let (name, _) = line.trim().strip_suffix(';')?.split_once(": ")?;
            Some(name.to_owned())
        }));
    }
    names.retain(|name| name.starts_with("minos_"));
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}
