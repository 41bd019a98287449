//! What the process gives up: root's rights once its addresses are bound, and system calls once it serves.

use std::{collections::BTreeMap, io};

use anyhow::{Context, bail, ensure};
use libc::c_long;
use nix::unistd::{Gid, Uid, User, getegid, geteuid, initgroups, setresgid, setresuid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

/// The user that the process is once its addresses are bound.
#[derive(Clone, Debug)]
pub(crate) struct Unprivileged {
    name: std::ffi::CString,
    uid: Uid,
    gid: Gid,
}

impl Unprivileged {
    /// Looks a user up.
    ///
    /// # Errors
    /// There is none of this name, or it is root.
    pub(crate) fn named(name: &str) -> anyhow::Result<Self> {
        let user = User::from_name(name).with_context(|| format!("--user {name}"))?;
        let Some(user) = user else { bail!("--user {name}: there is no such user") };
        ensure!(
            !user.uid.is_root() && user.gid.as_raw() != 0,
            "--user {name}: this user is root, or of its group"
        );
        ensure!(geteuid().is_root(), "--user {name}: only root may become another user");
        let name = std::ffi::CString::new(name).context("--user")?;
        Ok(Self { name, uid: user.uid, gid: user.gid })
    }

    /// Becomes this user, in all threads and for good.
    ///
    /// # Errors
    /// The kernel refuses, or the way back is still open.
    pub(crate) fn become_it(&self) -> io::Result<()> {
        initgroups(&self.name, self.gid)?;
        setresgid(self.gid, self.gid, self.gid)?;
        setresuid(self.uid, self.uid, self.uid)?;
        let root = Uid::from_raw(0);
        let is_done = geteuid() == self.uid && getegid() == self.gid && setresuid(root, root, root).is_err();
        is_done.then_some(()).ok_or_else(|| io::Error::other("the privileges are not dropped"))
    }
}

/// System calls of a server that has started, and of its reloads and its stop. Found by running the tests under `strace -f -c`;
/// those of C's library for threads, memory and signals are added.
const ALLOWED: &[c_long] = &[
    // Sockets and files that are open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_flock,
    // Readiness and time.
    libc::SYS_eventfd2,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    // Files of a reload, of a snapshot and of a stop.
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    // Of a folder that a path leaves by `..`, once for each of the two calls that C's libraries may use.
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_renameat,
    libc::SYS_getdents64,
    libc::SYS_fchmod,
    // Memory. That it is not made executable is checked below.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_brk,
    // Threads and signals. The other filter has the last word about `clone3`.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_prlimit64,
    libc::SYS_membarrier,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_tgkill,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Those of workers that open their lanes to flash. What a ring does is seen by no filter: it may open files and sockets.
const ALLOWED_WITH_FLASH: &[c_long] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_register, libc::SYS_io_uring_enter];

/// Those that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_readlink,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// Refuses all system calls, in all threads and for good, but those that a server makes which has started. What is refused
/// fails with EPERM. With flash io_uring is allowed. No program can be executed, no memory be made executable, and no rights be gained.
///
/// # Errors
/// The kernel has no seccomp.
pub(crate) fn sandbox(has_flash: bool) -> anyhow::Result<()> {
    // Without it C's library makes threads by `clone`, whose flags a filter can see. Of two filters the stricter prevails.
    let no_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    for (rules, on_match, otherwise) in [
        (no_clone3, SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::Allow),
        (allowed(has_flash)?, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32)),
    ] {
        let arch = std::env::consts::ARCH.try_into().context("--sandbox")?;
        let filter = SeccompFilter::new(rules, otherwise, on_match, arch).context("--sandbox")?;
        let program: BpfProgram = filter.try_into().context("--sandbox")?;
        apply_filter_all_threads(&program).context("--sandbox")?;
    }
    Ok(())
}

fn allowed(has_flash: bool) -> anyhow::Result<BTreeMap<c_long, Vec<SeccompRule>>> {
    let for_flash = if has_flash { ALLOWED_WITH_FLASH } else { &[] };
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALLOWED_HERE).chain(for_flash).map(|&call| (call, Vec::new())).collect();
    let not_executable = [(2, libc::PROT_EXEC as u64, 0)];
    rules.insert(libc::SYS_mmap, vec![rule(&not_executable)?]);
    rules.insert(libc::SYS_mprotect, vec![rule(&not_executable)?]);
    // Threads, but no processes.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![rule(&[(0, thread, thread)])?]);
    // Names of threads, and of their memory.
    let names =
        [libc::PR_SET_NAME, libc::PR_SET_VMA].map(|name| rule(&[(0, u64::from(u32::MAX), name as u64)]));
    rules.insert(libc::SYS_prctl, names.into_iter().collect::<anyhow::Result<_>>()?);
    Ok(rules)
}

/// Admits calls whose arguments of these numbers have these bits under their masks.
fn rule(arguments: &[(u8, u64, u64)]) -> anyhow::Result<SeccompRule> {
    let condition = |&(number, mask, bits): &(u8, u64, u64)| {
        SeccompCondition::new(number, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(mask), bits)
    };
    let conditions = arguments.iter().map(condition).collect::<Result<Vec<_>, _>>().context("--sandbox")?;
    SeccompRule::new(conditions).context("--sandbox")
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        net::{TcpListener, UdpSocket},
        process::Command,
        thread,
    };

    use super::*;

    const CHILD: &str = "MINOS_TEST_IN_SANDBOX";

    /// Runs in a process of its own, because there is no way back.
    #[test]
    fn what_a_server_never_does_is_refused() {
        if std::env::var_os(CHILD).is_none() {
            let name = "serve::confine::tests::what_a_server_never_does_is_refused";
            let mut child = Command::new(std::env::current_exe().unwrap());
            let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("all refused"), "{said}");
            return;
        }
        let [folder, link] =
            ["test", "link"].map(|what| format!("/tmp/minos-sandbox-{what}-{}", std::process::id()));
        // The control: each works before.
        let attempts = move || {
            [
                Command::new("/bin/true").status().map(drop),
                TcpListener::bind("127.0.0.1:0").map(drop),
                UdpSocket::bind("127.0.0.1:0").map(drop),
                std::fs::create_dir(&folder).and_then(|()| std::fs::remove_dir(&folder)),
                std::os::unix::fs::symlink("/", &link).and_then(|()| std::fs::remove_file(&link)),
            ]
        };
        assert!(attempts().iter().all(Result::is_ok), "{:?}", attempts());
        // A thread that was there before is held too.
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let earlier = thread::spawn(move || {
            gone.recv().unwrap();
            attempts().map(|attempt| attempt.map_err(|error| error.raw_os_error()))
        });
        sandbox(false).unwrap();
        go.send(()).unwrap();
        let refused = Err(Some(libc::EPERM));
        assert_eq!(earlier.join().unwrap(), [(); 5].map(|()| refused));
        // New threads and files can be had.
        assert!(thread::spawn(|| File::open("/dev/null").is_ok()).join().unwrap());
        println!("all refused");
    }

    #[test]
    fn users_that_give_nothing_up_are_refused() {
        assert!(Unprivileged::named("no-such-user-here").unwrap_err().to_string().contains("no such user"));
        assert!(Unprivileged::named("root").unwrap_err().to_string().contains("is root"));
    }
}
