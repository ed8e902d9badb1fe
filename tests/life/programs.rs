//! Real programs that are killed while their starter makes images: what they leave is what an undisturbed run leaves.

use super::*;

/// Kills the job's first process behind each of the next two images, as long as there is one; how often.
fn kill_twice(job: &mut Job) -> Result<u32, String> {
    let mut killed = 0;
    for _ in 0..2 {
        let made = status_of(job)?["NumCkpts"].as_u64().unwrap_or(0);
        let found = run::poll(STEP, || {
            let status = status_of(job).ok()?;
            let ended = status["State"] == "Completed";
            (ended || status["NumCkpts"].as_u64() > Some(made)).then_some(ended)
        });
        if found.ok_or("neither an image nor an end")? {
            break;
        }
        let report = report(job, "ps")?;
        let root = report["jobs"][0]["root_pid"].as_i64();
        if let Some(root) = root.and_then(|root| i32::try_from(root).ok()) {
            killed += u32::from(kill(Pid::from_raw(root), Signal::SIGKILL).is_ok());
        }
    }
    Ok(killed)
}

/// Where a program's standard output goes.
const OUTPUT: &str = "output";

/// The program, killed, in the job's directory; the same undisturbed in another; the files and outputs that must be the same.
fn ends_as_undisturbed(guest: &Guest, options: &[&str], files: &[&str], prepare: fn(&Path)) {
    with_job(guest, |job| {
        let (there, here) = (job.dir.join("data"), job.dir.join("undisturbed"));
        fs::create_dir(&here).map_err(|error| error.to_string())?;
        User::Ordinary.own(&here);
        prepare(&there);
        prepare(&here);
        // What has gone into a pipe nobody takes back; what is in a file goes back with the job.
        let output = fs::File::create(there.join(OUTPUT)).map_err(|error| error.to_string())?;
        User::Ordinary.own(&there.join(OUTPUT));
        let mut command = starting(job, &[&["--every", "150ms"], options].concat());
        command.stdin(std::process::Stdio::null());
        let run = Run::start_into(output, THE_GUEST, command, User::Ordinary)?;
        job.runs.push(run);
        until(job, "begun", |status| status["State"] != "Starting")?;
        let killed = kill_twice(job)?;
        expect_end(job, 0)?;
        if killed == 0 {
            return Err("it has ended before it could be killed".to_owned());
        }
        let mut command = run::clean_command(&job.guest.program);
        command.args(&job.guest.arguments).current_dir(&here);
        let (_, undisturbed) = finish("undisturbed", command, User::Ordinary, WHOLE)?;
        let said = fs::read_to_string(there.join(OUTPUT)).map_err(|error| error.to_string())?;
        if said != undisturbed.out.text() {
            return Err(format!(
                "{}\nfound another output: {said}",
                undisturbed.describe()
            ));
        }
        for file in files {
            let read = |dir: &Path| fs::read(dir.join(file)).map_err(|error| error.to_string());
            if read(&there)? != read(&here)? {
                return Err(format!("{file} is not as an undisturbed run leaves it"));
            }
        }
        Ok(())
    });
}

fn write_words(dir: &Path) {
    let mut number = 1u64;
    let lines = (0..1_200_000).map(|_| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        format!("{:x}\n", number >> 20)
    });
    fs::write(dir.join("words"), lines.collect::<String>()).expect("is written");
}

/// It writes pieces to a file of its own, merges them, and writes the result.
#[test]
fn sort_is_killed() {
    let words = [
        "--parallel=1",
        "-S",
        "8M",
        "-T",
        ".",
        "-o",
        "sorted",
        "words",
    ];
    let guest = Guest::new("sort", "/usr/bin/sort", &words);
    ends_as_undisturbed(&guest, &[], &["sorted"], write_words);
}

const QUERIES: &str = "
pragma temp_store = memory;
create table t(a integer primary key, b text);
begin;
insert into t(b) with recursive c(x) as (select 1 union all select x + 1 from c where x < 400000) select x * x % 977 || 'x' from c;
commit;
update t set b = b || a where a % 3 = 0;
pragma integrity_check;
select count(*), sum(length(b)), min(b), max(b) from t;
";

/// It changes its data base in place, with a journal of its own that it removes.
#[test]
fn sqlite_is_killed() {
    let guest = Guest::new("sqlite", "/usr/bin/sqlite3", &["data.db", QUERIES]);
    ends_as_undisturbed(&guest, &["--journal"], &[], |_| ());
}

/// Compiled Fortran, with a file that it writes and reads back.
#[test]
fn fortran_is_killed() {
    let source = support::stage::repository().join("tests/programs/waves.f90");
    let program = support::stage::dir().join("life-waves");
    support::stage::build_if_older(&program, std::slice::from_ref(&source), |beside| {
        // Two thirds of its steps.
        let script = "sed 's/steps = 3000/steps = 2000/' \"$1\" > \"$0.f90\" && gfortran -O1 -o \"$0\" \"$0.f90\"";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]).arg(beside).arg(&source);
        command
    })
    .expect("gfortran compiles it");
    let guest = Guest::new("fortran", program, &[]);
    ends_as_undisturbed(&guest, &[], &["energies.txt"], |_| ());
}
