//! The file with the users.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use minos_access::Acl;

use super::ACCESS_TABLES;

/// Reads the users of a file.
///
/// # Errors
/// It cannot be read, or names the line that is of no use.
pub fn read_users(path: &Path) -> Result<Acl, String> {
    let name = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| name(&error))?;
    Acl::parse(&text, ACCESS_TABLES).map_err(|error| name(&error))
}

/// Writes the users in the place of a file, which has its old content until it has the new one. Comments are lost.
pub(super) fn write_users(path: &Path, acl: &Acl) -> io::Result<()> {
    let text = acl.to_string();
    // With a file that is refused the server would not start again.
    Acl::parse(&text, ACCESS_TABLES).map_err(io::Error::other)?;
    // Where a link shows, as the one that reads it does.
    let path = fs::canonicalize(path)?;
    let beside = beside(&path);
    let written = write_beside(&path, &beside, &text).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // It may not be there.
        let _ = fs::remove_file(&beside);
        return written;
    }
    // The name is safe once its folder is.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// The file that takes the place.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

fn write_beside(path: &Path, beside: &Path, text: &str) -> io::Result<()> {
    let permissions = fs::metadata(path)?.permissions();
    // One that a process of this number left behind is of no use.
    let _ = fs::remove_file(beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    file.set_permissions(permissions)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn users_are_written_as_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let hash = minos_access::hash(b"secret").unwrap();
        let text = format!("user app on #{hash} ~a:* %R~b +@read -get\nuser default off\n");
        fs::write(&path, format!("# a comment\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let users = read_users(&path).unwrap();
        write_users(&path, &users).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(read_users(&folder.path().join("none")).unwrap_err().contains("none: "));
    }

    #[test]
    fn no_file_is_written_that_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, "user default off\n").unwrap();
        let mut users = read_users(&path).unwrap();
        for number in 0..40 {
            users.set_user(&format!("u{number}"), [format!("~{}", "p".repeat(30_000)).as_str()]).unwrap();
        }
        let error = write_users(&path, &users).unwrap_err().to_string();
        assert!(error.contains("the file has more than"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "user default off\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// A file that cannot be written stays as it was.
    #[test]
    fn a_failed_write_leaves_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, "user default off\n").unwrap();
        let users = read_users(&path).unwrap();
        fs::create_dir(beside(&path)).unwrap();
        assert!(write_users(&path, &users).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "user default off\n");
        fs::remove_file(&path).unwrap();
        assert!(write_users(&path, &users).is_err(), "there is no file");
    }
}
