/* What belongs to a process as a whole. */
#include "guest.h"
#include <linux/membarrier.h>
#include <sys/personality.h>
#include <sys/resource.h>

static char *text_before, *path;
static long value_before;

static void set_cwd(void) {
    path = scratch("a folder");
    must("mkdir", mkdir(path, 0755));
    must("chdir", chdir(path));
    write_text("here", "relative");
}
static void check_cwd(void) {
    char found[PATH_MAX];
    expect_true("getcwd", getcwd(found, sizeof found) != NULL);
    expect_text("cwd", found, path);
    expect_text("a relative path", read_text("here"), "relative");
}
static void set_umask(void) { umask(0137); }
static void check_umask(void) {
    int fd = must("open", open(scratch("masked"), O_CREAT | O_WRONLY, 0777));
    struct stat found;
    must("fstat", fstat(fd, &found));
    expect("mode", found.st_mode & 0777, 0640);
    expect("umask", umask(0), 0137);
}
static void set_root(void) {
    path = scratch("");
    if (chroot(path) != 0)
        skip("chroot: %s", strerror(errno));
    must("chdir", chdir("/"));
    setenv("WF_GO", "/go", 1);
}
static void check_root(void) {
    write_text("/inside", "x");
    expect("the rest of the system is not there", access("/usr", F_OK), -1);
}

#define LIMITS 16
static struct rlimit limits[LIMITS];
static void set_rlimits(void) {
    struct rlimit limit;
    must("getrlimit", getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_cur > 700 ? 700 : limit.rlim_cur - 1;
    limit.rlim_max -= limit.rlim_max > 4000 ? 3 : 0;
    must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
    limit = (struct rlimit){12345678, 23456789};
    must("setrlimit", setrlimit(RLIMIT_CORE, &limit));
    limit = (struct rlimit){1ul << 40, 1ul << 41};
    must("setrlimit", setrlimit(RLIMIT_FSIZE, &limit));
    limit = (struct rlimit){100000, RLIM_INFINITY};
    setrlimit(RLIMIT_CPU, &limit);
    /* The others lower than anybody has them, if they are not zero. */
    const struct {
        int resource;
        rlim_t soft;
    } lower[] = {
        {RLIMIT_AS, 1ul << 46},      {RLIMIT_DATA, 1ul << 45},      {RLIMIT_LOCKS, 12345},     {RLIMIT_MSGQUEUE, 400000},
        {RLIMIT_RSS, 1ul << 44},     {RLIMIT_RTTIME, 1ul << 43},    {RLIMIT_NICE, 1},          {RLIMIT_RTPRIO, 1},
        {RLIMIT_MEMLOCK, 1ul << 16}, {RLIMIT_SIGPENDING, 1000},
    };
    for (size_t i = 0; i < ARRAY_LEN(lower); i++) {
        must("getrlimit", getrlimit(lower[i].resource, &limit));
        limit.rlim_cur = limit.rlim_cur > lower[i].soft ? lower[i].soft : limit.rlim_cur;
        must("setrlimit", setrlimit(lower[i].resource, &limit));
    }
    /* One less than the restarter, whose own processes count, too. */
    must("getrlimit", getrlimit(RLIMIT_NPROC, &limit));
    limit.rlim_cur -= limit.rlim_cur > 1000;
    must("setrlimit", setrlimit(RLIMIT_NPROC, &limit));
    for (int i = 0; i < LIMITS; i++)
        must("getrlimit", getrlimit(i, &limits[i]));
}
static void check_rlimits(void) {
    for (int i = 0; i < LIMITS; i++) {
        struct rlimit found;
        char what[32];
        must("getrlimit", getrlimit(i, &found));
        snprintf(what, sizeof what, "soft limit %d", i);
        expect(what, found.rlim_cur, limits[i].rlim_cur);
        snprintf(what, sizeof what, "hard limit %d", i);
        expect(what, found.rlim_max, limits[i].rlim_max);
    }
}
static void set_personality(void) {
    must("personality", personality(ADDR_NO_RANDOMIZE | UNAME26));
}
static void check_personality(void) {
    expect("personality", personality(0xffffffff), ADDR_NO_RANDOMIZE | UNAME26);
}

static void set_no_new_privs(void) { must("prctl", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); }
static void check_no_new_privs(void) { expect("no_new_privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1); }
static void check_new_privs(void) { expect("no_new_privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), value_before); }
static void look_new_privs(void) { value_before = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); }
static void look_dumpable(void) { value_before = prctl(PR_GET_DUMPABLE); }
static void check_still_dumpable(void) { expect("dumpable", prctl(PR_GET_DUMPABLE), value_before); }
static void set_parent_death(void) { must("prctl", prctl(PR_SET_PDEATHSIG, SIGUSR1)); }
static void check_parent_death(void) {
    int found = 0;
    must("prctl", prctl(PR_GET_PDEATHSIG, &found));
    expect("parent-death signal", found, SIGUSR1);
}
static void set_subreaper(void) { must("prctl", prctl(PR_SET_CHILD_SUBREAPER, 1)); }
static void check_subreaper(void) {
    int found = 0;
    must("prctl", prctl(PR_GET_CHILD_SUBREAPER, &found));
    expect("subreaper", found, 1);
}
static void set_thp(void) { must("prctl", prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)); }
static void check_thp(void) { expect("THP disabled", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1); }

static void set_membarrier(void) {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) < 0)
        skip("no membarrier: %s", strerror(errno));
    must("register", syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
    must("register", syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
    must("register", syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0));
    must("register", syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0));
}
static void check_membarrier(void) {
    must("private expedited", syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
    must("sync core", syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
    must("rseq", syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0));
    /* Who is registered for this shows in no barrier of its own, but to whoever asks (Linux 6.3). */
    int registered = syscall(SYS_membarrier, 1 << 9 /* MEMBARRIER_CMD_GET_REGISTRATIONS */, 0, 0);
    if (registered >= 0)
        expect("registrations", registered,
               MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE |
                   MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ | MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}
/* SECBIT_NOROOT_LOCKED, SECBIT_NO_SETUID_FIXUP, SECBIT_KEEP_CAPS */
#define SECUREBITS (1 << 1 | 1 << 2 | 1 << 4)
static void set_securebits(void) {
    if (prctl(PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0) != 0)
        skip("securebits: %s", strerror(errno));
}
static void check_securebits(void) { expect("securebits", prctl(PR_GET_SECUREBITS), SECUREBITS); }
/* The one of them that needs no privilege. */
static void set_keep_caps(void) { must("PR_SET_KEEPCAPS", prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)); }
static void check_keep_caps(void) { expect("PR_GET_KEEPCAPS", prctl(PR_GET_KEEPCAPS), 1); }

static long ids[4];
static void look_ids(long found[4]) {
    found[0] = getpid();
    found[1] = getpgid(0);
    found[2] = getsid(0);
    found[3] = getuid() | (long)getgid() << 32;
}
static void set_session(void) {
    if (setsid() < 0 && getsid(0) != getpid()) /* whoever leads a group cannot */
        skip("setsid: %s", strerror(errno));
    look_ids(ids);
}
static void set_ids(void) { look_ids(ids); }
static void check_ids(void) {
    static const char *names[] = {"process", "process group", "session", "user and group"};
    long found[4];
    look_ids(found);
    for (int i = 0; i < 4; i++)
        expect(names[i], found[i], ids[i]);
}
static void set_group(void) {
    if (getpgid(0) != getpid() && setpgid(0, 0) != 0)
        skip("setpgid: %s", strerror(errno));
    look_ids(ids);
}

static char *link_of(const char *name) {
    char *text = calloc(1, PATH_MAX);
    must(name, readlink(name, text, PATH_MAX - 1));
    return text;
}
static void set_exe(void) { text_before = link_of("/proc/self/exe"); }
static void check_exe(void) { expect_text("/proc/self/exe", link_of("/proc/self/exe"), text_before); }
static size_t read_raw(const char *name, char *into, size_t len) {
    int fd = must(name, open(name, O_RDONLY));
    size_t n = must(name, read(fd, into, len));
    close(fd);
    return n;
}
static char cmdline[4096], environment[16384];
static size_t cmdline_len, environment_len;
static void set_cmdline(void) {
    cmdline_len = read_raw("/proc/self/cmdline", cmdline, sizeof cmdline);
    environment_len = read_raw("/proc/self/environ", environment, sizeof environment);
}
static void check_cmdline(void) {
    static char found[16384];
    expect("length of cmdline", read_raw("/proc/self/cmdline", found, sizeof found), cmdline_len);
    expect_bytes("cmdline", found, cmdline, cmdline_len);
    expect("length of environ", read_raw("/proc/self/environ", found, sizeof found), environment_len);
    expect_bytes("environ", found, environment, environment_len);
}
static char vector[4096];
static size_t vector_len;
static void set_auxv(void) { vector_len = read_raw("/proc/self/auxv", vector, sizeof vector); }
static void check_auxv(void) {
    static char found[4096];
    expect("length of auxv", read_raw("/proc/self/auxv", found, sizeof found), vector_len);
    expect_bytes("auxv", found, vector, vector_len);
}
static void set_oom(void) {
    write_text("/proc/self/oom_score_adj", "321");
    write_text("/proc/self/coredump_filter", "0x11");
}
static void check_oom(void) {
    expect_text("oom_score_adj", read_text("/proc/self/oom_score_adj"), "321\n");
    expect_text("coredump_filter", read_text("/proc/self/coredump_filter"), "00000011\n");
}

/* Nothing of wayfarer is left: no mapping, descriptor or thread that was not ours. */
static char maps_before[1 << 16], maps_found[1 << 16];
/* Without malloc, which may map more for it. */
static void maps_names(char *names, size_t room) {
    static char text[1 << 18];
    int file = must("maps", open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
    size_t len = 0;
    ssize_t n;
    while ((n = must("maps", read(file, text + len, sizeof text - 1 - len))) > 0)
        len += n;
    close(file);
    text[len] = 0;
    char *line = text, *end_of_names = names;
    *names = 0;
    for (; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        int at = 0;
        unsigned long start, end;
        char prot[5];
        if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %n", &start, &end, prot, &at) == 3 && at > 0) {
            int of_name = strcspn(line + at, "\n");
            if (memmem(line + at, of_name, "[heap]", 6) || memmem(line + at, of_name, "[stack]", 7))
                continue; /* these may grow */
            size_t left = names + room - end_of_names;
            end_of_names += snprintf(end_of_names, left, "%lx-%lx %s %.*s\n", start, end, prot, of_name, line + at);
            if (end_of_names >= names + room)
                fail("mappings", "more of them than expected");
        }
    }
}
static int count_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}
static int descriptors_before;
static void during_traces(void) {
    maps_names(maps_before, sizeof maps_before); /* all that it needs is there now */
    maps_names(maps_before, sizeof maps_before);
    descriptors_before = count_descriptors();
    wait_for_go();
}
static void check_traces(void) {
    maps_names(maps_found, sizeof maps_found);
    expect_text("mappings", maps_found, maps_before);
    expect("descriptors", count_descriptors(), descriptors_before);
    expect_text("tracer", status_field("TracerPid"), "0");
    expect_text("seccomp", status_field("Seccomp"), "0");
}

static const struct guest guests[] = {
    {"cwd", set_cwd, check_cwd, NULL},
    {"umask", set_umask, check_umask, NULL},
    {"root", set_root, check_root, NULL},
    {"rlimits", set_rlimits, check_rlimits, NULL},
    {"personality", set_personality, check_personality, NULL},
    {"no_new_privs", set_no_new_privs, check_no_new_privs, NULL},
    {"new_privs", look_new_privs, check_new_privs, NULL},
    {"still_dumpable", look_dumpable, check_still_dumpable, NULL},
    {"parent_death", set_parent_death, check_parent_death, NULL},
    {"subreaper", set_subreaper, check_subreaper, NULL},
    {"thp", set_thp, check_thp, NULL},
    {"membarrier", set_membarrier, check_membarrier, NULL},
    {"keep_caps", set_keep_caps, check_keep_caps, NULL},
    {"securebits", set_securebits, check_securebits, NULL},
    {"ids", set_ids, check_ids, NULL},
    {"session", set_session, check_ids, NULL},
    {"group", set_group, check_ids, NULL},
    {"exe", set_exe, check_exe, NULL},
    {"cmdline", set_cmdline, check_cmdline, NULL},
    {"auxv", set_auxv, check_auxv, NULL},
    {"oom_and_core", set_oom, check_oom, NULL},
    {"traces", NULL, check_traces, during_traces},
};
GUEST_MAIN(guests)
