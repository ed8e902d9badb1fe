//! Root passes over permissions and protected links; the owner of a job does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn all_of_this_holds_for_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip::note(
            "all_of_this_holds_for_an_ordinary_user",
            "it does run as one",
        );
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("undo");
    fs::copy(std::env::current_exe().expect("is known"), &program).expect("copies");
    for path in [directory.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("sets");
    }
    let user = ["--reuid=wftest", "--regid=wftest", "--init-groups"];
    let output = Command::new("setpriv")
        .args(user)
        .arg(&program)
        .current_dir("/")
        .output()
        .expect("setpriv starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    let random = "any_requests_are_undone_to_any_mark ... ok";
    assert!(text.contains(random), "{text}");
}
