/* What has been said about memory: madvise, mlock, huge pages. The flags are
 * compared as smaps shows them, and tried where they do something. */
#include "guest.h"
#include <sys/resource.h>

#define PAGE 4096ul
#define MIB (1024 * 1024ul)
#define RW (PROT_READ | PROT_WRITE)

static uint8_t *area;

static uint8_t *anonymous(size_t len) {
    return must_map("mmap", mmap(NULL, len, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static void set_advice(int advice, const char *name) {
    area = anonymous(4 * PAGE);
    fill_pattern(area, 4 * PAGE, 1);
    if (madvise(area, 4 * PAGE, advice) != 0)
        skip("no %s here: %s", name, strerror(errno));
}
static void check_flag(const char *flag) {
    expect_true(flag, has_flag(vm_flags(area), flag));
    expect_pattern("its bytes", area, 4 * PAGE, 1);
}

static void set_dontfork(void) { set_advice(MADV_DONTFORK, "MADV_DONTFORK"); }
static int must_be_absent(void *unused) {
    (void)unused;
    return faults(area) ? 0 : 1;
}
static void check_dontfork(void) {
    check_flag("dc");
    in_child("MADV_DONTFORK memory in a child", must_be_absent, NULL);
}
static void set_wipeonfork(void) { set_advice(MADV_WIPEONFORK, "MADV_WIPEONFORK"); }
static int must_be_zero(void *unused) {
    (void)unused;
    return area[100] == 0 && area[3 * PAGE] == 0 ? 0 : 1;
}
static void check_wipeonfork(void) {
    check_flag("wf");
    in_child("MADV_WIPEONFORK memory in a child", must_be_zero, NULL);
    expect_pattern("its bytes after fork", area, 4 * PAGE, 1);
}
static void set_dontdump(void) { set_advice(MADV_DONTDUMP, "MADV_DONTDUMP"); }
static void check_dontdump(void) { check_flag("dd"); }
static void set_hugepage(void) { set_advice(MADV_HUGEPAGE, "MADV_HUGEPAGE"); }
static void check_hugepage(void) { check_flag("hg"); }
static void set_nohugepage(void) { set_advice(MADV_NOHUGEPAGE, "MADV_NOHUGEPAGE"); }
static void check_nohugepage(void) { check_flag("nh"); }
static void set_mergeable(void) { set_advice(MADV_MERGEABLE, "MADV_MERGEABLE"); }
static void check_mergeable(void) { check_flag("mg"); }
static void set_sequential(void) { set_advice(MADV_SEQUENTIAL, "MADV_SEQUENTIAL"); }
static void check_sequential(void) { check_flag("sr"); }
static void set_random(void) { set_advice(MADV_RANDOM, "MADV_RANDOM"); }
static void check_random(void) { check_flag("rr"); }

/* --- locked memory --- */

static long locked_kib(void) {
    char *value = status_field("VmLck");
    long kib = atol(value);
    free(value);
    return kib;
}
static long locked_before;
static void set_mlock(void) {
    area = anonymous(4 * PAGE);
    fill_pattern(area, 4 * PAGE, 1);
    if (mlock(area, 4 * PAGE) != 0)
        skip("mlock: %s", strerror(errno));
    locked_before = locked_kib();
}
static void check_mlock(void) {
    check_flag("lo");
    expect("VmLck in KiB", locked_kib(), locked_before);
}
static void set_mlock_onfault(void) {
    area = anonymous(64 * PAGE);
    fill_pattern(area, 4 * PAGE, 1);
    if (mlock2(area, 64 * PAGE, MLOCK_ONFAULT) != 0)
        skip("mlock2: %s", strerror(errno));
}
static void check_mlock_onfault(void) {
    check_flag("lo");
    unsigned char in_core[64];
    must("mincore", mincore(area, 64 * PAGE, in_core));
    expect("pages nobody touched are not in core", in_core[40] & 1, 0);
}
static void set_mlockall(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur < 4 * MIB)
        skip("mlockall needs an RLIMIT_MEMLOCK of 4 MiB at least");
    /* Stacks of the busy threads count. */
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_setattr_default_np(&attributes);
    must("mlockall", mlockall(MCL_FUTURE));
    area = anonymous(4 * PAGE);
    fill_pattern(area, 4 * PAGE, 1);
}
static void check_mlockall(void) {
    check_flag("lo");
    area = anonymous(4 * PAGE);
    expect_true("MCL_FUTURE still holds", has_flag(vm_flags(area), "lo"));
}

/* --- huge pages --- */

static void set_hugetlb(void) {
    area = mmap(NULL, 4 * MIB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (area == MAP_FAILED)
        skip("no huge pages here: %s", strerror(errno));
    fill_pattern(area, 4 * MIB, 2);
}
static void check_hugetlb(void) {
    expect_pattern("huge pages", area, 4 * MIB, 2);
    expect_true("MAP_HUGETLB", has_flag(vm_flags(area), "ht"));
}
static void set_hugetlb_shared(void) {
    area = mmap(NULL, 4 * MIB, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (area == MAP_FAILED)
        skip("no huge pages here: %s", strerror(errno));
    fill_pattern(area, 4 * MIB, 4);
}
static void check_hugetlb_shared(void) {
    expect_pattern("huge pages", area, 4 * MIB, 4);
    expect_true("MAP_HUGETLB", has_flag(vm_flags(area), "ht"));
    expect_true("MAP_SHARED", has_flag(vm_flags(area), "sh"));
    pid_t child = must("fork", fork());
    if (child == 0) {
        area[5] = 77;
        _exit(0);
    }
    must("waitpid", waitpid(child, NULL, 0));
    expect("what a child has written", area[5], 77);
}
static uint8_t *alias;
static int huge_file;
static void set_hugetlb_memfd(void) {
    huge_file = memfd_create("huge", MFD_HUGETLB | MFD_CLOEXEC);
    if (huge_file < 0 || ftruncate(huge_file, 4 * MIB) != 0)
        skip("no memfd of huge pages here: %s", strerror(errno));
    area = mmap(NULL, 4 * MIB, RW, MAP_SHARED, huge_file, 0);
    alias = mmap(NULL, 2 * MIB, RW, MAP_SHARED, huge_file, 2 * MIB);
    if (area == MAP_FAILED || alias == MAP_FAILED)
        skip("no huge pages here: %s", strerror(errno));
    fill_pattern(area, 4 * MIB, 5);
}
static void check_hugetlb_memfd(void) {
    struct stat found;
    expect_pattern("huge pages", area, 4 * MIB, 5);
    expect_true("MFD_HUGETLB", has_flag(vm_flags(area), "ht"));
    must("fstat", fstat(huge_file, &found));
    expect("size", found.st_size, 4 * MIB);
    expect("size of a page", found.st_blksize, 2 * MIB);
    area[2 * MIB + 9] = 78;
    expect("by the other mapping", alias[9], 78);
}
/* Transparent huge pages: the contents, whatever pages the kernel takes. */
static void set_transparent(void) {
    area = anonymous(16 * MIB);
    madvise(area, 16 * MIB, MADV_HUGEPAGE);
    fill_pattern(area, 10 * MIB, 3);
}
static void check_transparent(void) { expect_pattern("memory in huge pages", area, 10 * MIB, 3); }

static const struct guest guests[] = {
    {"dontfork", set_dontfork, check_dontfork, NULL},
    {"wipeonfork", set_wipeonfork, check_wipeonfork, NULL},
    {"dontdump", set_dontdump, check_dontdump, NULL},
    {"hugepage", set_hugepage, check_hugepage, NULL},
    {"nohugepage", set_nohugepage, check_nohugepage, NULL},
    {"mergeable", set_mergeable, check_mergeable, NULL},
    {"sequential", set_sequential, check_sequential, NULL},
    {"random", set_random, check_random, NULL},
    {"mlock", set_mlock, check_mlock, NULL},
    {"mlock_onfault", set_mlock_onfault, check_mlock_onfault, NULL},
    {"mlockall", set_mlockall, check_mlockall, NULL},
    {"hugetlb", set_hugetlb, check_hugetlb, NULL},
    {"hugetlb_shared", set_hugetlb_shared, check_hugetlb_shared, NULL},
    {"hugetlb_memfd", set_hugetlb_memfd, check_hugetlb_memfd, NULL},
    {"transparent_huge", set_transparent, check_transparent, NULL},
};
GUEST_MAIN(guests)
