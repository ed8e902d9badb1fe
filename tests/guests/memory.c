/* What is in an address space: private and shared, anonymous and of files. */
#include "guest.h"
#include <sys/resource.h>

#define PAGE 4096ul
#define MIB (1024 * 1024ul)
#define RW (PROT_READ | PROT_WRITE)

static uint8_t *area, *alias;
static int fd = -1;
static char *path;

static uint8_t *map(size_t len, int prot, int flags, int from, off_t offset) {
    return must_map("mmap", mmap(NULL, len, prot, flags, from, offset));
}
static uint8_t *map_at(uintptr_t at, size_t len) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    return must_map("mmap", mmap((void *)at, len, RW, flags, -1, 0));
}
static uint8_t *anonymous(size_t len) { return map(len, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

/* --- anonymous memory, and that it is anonymous again --- */

static void set_anonymous(void) {
    area = anonymous(4 * MIB);
    fill_pattern(area, 2 * MIB, 1); /* the second half is never touched */
}
static void all_zero(const char *what, const uint8_t *bytes, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != 0)
            fail(what, "byte %zu: found %#x, expected 0", i, bytes[i]);
}
static void check_anonymous(void) {
    expect_pattern("private anonymous memory", area, 2 * MIB, 1);
    all_zero("memory never touched", area + 2 * MIB, 2 * MIB);
    must("MADV_FREE", madvise(area, MIB, MADV_FREE));
    char *lazily = smaps_field(area, "LazyFree:");
    expect_true("memory may be taken away after MADV_FREE", strtoul(lazily, NULL, 10) > 0);
    free(lazily);
    area[PAGE + 5] = 77; /* whoever writes keeps the page, with what it held or with zeros */
    expect("what was written after MADV_FREE", area[PAGE + 5], 77);
    must("MADV_DONTNEED", madvise(area + MIB, MIB, MADV_DONTNEED));
    all_zero("memory after MADV_DONTNEED", area + MIB, MIB);
    must("MADV_WIPEONFORK", madvise(area, MIB, MADV_WIPEONFORK));
    expect_true("no file behind it", strstr(vm_flags(area), "sh") == NULL);
    char *maps = read_text("/proc/self/maps"), *line = maps;
    for (; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        unsigned long start, end, inode;
        int at;
        if (sscanf(line, "%lx-%lx %*s %*x %*x:%*x %lu%n", &start, &end, &inode, &at) == 3 &&
            start <= (uintptr_t)area && (uintptr_t)area < end)
            expect("inode of anonymous memory", inode, 0);
    }
}

/* Pages of zeros that were written stay zero, others keep what is around them. */
static void set_sparse(void) {
    area = anonymous(64 * MIB);
    for (size_t page = 0; page < 64 * MIB / PAGE; page += 97)
        area[page * PAGE + page % PAGE] = page % 97 == 0 ? (uint8_t)(page | 1) : 0;
}
static void check_sparse(void) {
    for (size_t page = 0; page < 64 * MIB / PAGE; page++)
        for (size_t at = 0; at < PAGE; at++) {
            bool written = page % 97 == 0 && at == page % PAGE;
            if (area[page * PAGE + at] != (written ? (uint8_t)(page | 1) : 0))
                fail("sparse memory", "page %zu: found %#x at %zu", page, area[page * PAGE + at], at);
        }
}

/* Protections, odd boundaries, a hole. */
static void set_protections(void) {
    /* Where nobody looks for room: the hole is not to be taken by a malloc. */
    area = map_at(0x2000000000, 8 * PAGE);
    fill_pattern(area, 8 * PAGE, 2);
    must("mprotect", mprotect(area + PAGE, PAGE, PROT_READ));
    must("mprotect", mprotect(area + 2 * PAGE, PAGE, PROT_NONE));
    must("mprotect", mprotect(area + 3 * PAGE, PAGE, PROT_READ | PROT_EXEC));
    must("munmap", munmap(area + 5 * PAGE, PAGE));
}
static void check_protections(void) {
    expect_pattern("page 0", area, PAGE, 2);
    expect_pattern("page 1 (read only)", area + PAGE, PAGE, 2 + PAGE / 8);
    expect_true("page 2 (PROT_NONE) faults", faults(area + 2 * PAGE));
    expect_pattern("page 3 (executable)", area + 3 * PAGE, PAGE, 2 + 3 * PAGE / 8);
    expect_true("page 5 (unmapped) faults", faults(area + 5 * PAGE));
    expect_pattern("page 6", area + 6 * PAGE, 2 * PAGE, 2 + 6 * PAGE / 8);
    must("mprotect", mprotect(area + 2 * PAGE, PAGE, PROT_READ));
    expect_pattern("page 2, opened", area + 2 * PAGE, PAGE, 2 + 2 * PAGE / 8);
    char *flags = vm_flags(area + PAGE);
    expect_true("page 1 is readable", has_flag(flags, "rd"));
    expect_true("page 1 is not writable", !has_flag(flags, "wr"));
}

/* --- private and shared mappings of a file --- */

static void make_file(size_t len, uint64_t seed) {
    path = scratch("mapped");
    fd = must("open", open(path, O_RDWR | O_CREAT | O_TRUNC, 0644));
    uint8_t *bytes = malloc(len);
    fill_pattern(bytes, len, seed);
    expect("write", write(fd, bytes, len), len);
    free(bytes);
}
static void set_private_file(void) {
    make_file(16 * PAGE, 3);
    area = map(16 * PAGE, RW, MAP_PRIVATE, fd, 0);
    close(fd);
    fill_pattern(area + 4 * PAGE, PAGE, 4); /* the job's own copy of one page */
    memset(area + 6 * PAGE, 0, PAGE);       /* and one of zeros */
}
static void check_private_file(void) {
    expect_pattern("unchanged pages", area, 4 * PAGE, 3);
    expect_pattern("changed page", area + 4 * PAGE, PAGE, 4);
    all_zero("page overwritten with zeros", area + 6 * PAGE, PAGE);
    expect_pattern("unchanged pages", area + 7 * PAGE, 9 * PAGE, 3 + 7 * PAGE / 8);
    must("MADV_DONTNEED", madvise(area, 16 * PAGE, MADV_DONTNEED));
    expect_pattern("the file's bytes after MADV_DONTNEED", area, 16 * PAGE, 3);
    int now = must("open", open(path, O_WRONLY));
    expect("pwrite", pwrite(now, "changed", 7, 0), 7);
    expect_bytes("the file's new bytes, seen through the mapping", area, "changed", 7);
}
static void set_shared_file(void) {
    make_file(16 * PAGE, 5);
    area = map(16 * PAGE, RW, MAP_SHARED, fd, 0);
    alias = map(4 * PAGE, PROT_READ, MAP_SHARED, fd, 4 * PAGE);
    fill_pattern(area + 4 * PAGE, PAGE, 6);
}
static void check_shared_file(void) {
    expect_pattern("shared file", area, 4 * PAGE, 5);
    expect_pattern("what was written through the mapping", alias, PAGE, 6);
    area[5 * PAGE] = 0x5a;
    expect("the other mapping of the file", alias[PAGE], 0x5a);
    uint8_t byte = 0;
    int again = must("open", open(path, O_RDONLY));
    expect("pread", pread(again, &byte, 1, 5 * PAGE), 1);
    expect("the file itself", byte, 0x5a);
}
static void set_deleted_file(void) {
    make_file(16 * PAGE, 7);
    area = map(16 * PAGE, RW, MAP_SHARED, fd, 0);
    alias = map(16 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    must("unlink", unlink(path));
}
static void check_deleted_file(void) {
    expect_pattern("deleted file", area, 16 * PAGE, 7);
    expect_pattern("deleted file, private mapping", alias, 16 * PAGE, 7);
    area[0] = 0xa5;
    uint8_t byte = 0;
    expect("pread", pread(fd, &byte, 1, 0), 1);
    expect("its descriptor and its mapping are one file", byte, 0xa5);
    struct stat found;
    must("fstat", fstat(fd, &found));
    expect("links", found.st_nlink, 0);
    expect("size", found.st_size, 16 * PAGE);
}

/* --- shared anonymous memory --- */

static void set_shared_anonymous(void) {
    area = map(MIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fill_pattern(area, MIB / 2, 8);
}
static int write_shared(void *unused) {
    (void)unused;
    area[MIB - 1] = 0x77;
    return 0;
}
static void check_shared_anonymous(void) {
    expect_pattern("shared anonymous memory", area, MIB / 2, 8);
    all_zero("its untouched half", area + MIB / 2, MIB / 2);
    in_child("a child", write_shared, NULL);
    expect("what a child wrote", area[MIB - 1], 0x77);
}
static void set_memfd_aliases(void) {
    fd = must("memfd_create", memfd_create("aliased", MFD_CLOEXEC));
    must("ftruncate", ftruncate(fd, 8 * PAGE));
    area = map(8 * PAGE, RW, MAP_SHARED, fd, 0);
    alias = map(4 * PAGE, RW, MAP_SHARED, fd, 4 * PAGE);
    close(fd);
    fill_pattern(area, 8 * PAGE, 9);
}
static void check_memfd_aliases(void) {
    expect_pattern("mapping of a closed memfd", area, 8 * PAGE, 9);
    alias[5] = 0x42;
    expect("both mappings are one memory", area[4 * PAGE + 5], 0x42);
}

/* --- stack, heap, guard pages --- */

static volatile uint8_t *deep_stack;
static __attribute__((noinline)) void use_stack(int depth) {
    volatile uint8_t frame[16 * 1024];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = (uint8_t)(depth + i);
    if (depth > 0) {
        use_stack(depth - 1);
    } else {
        deep_stack = frame;
        wait_for_go();
    }
    for (size_t i = 0; i < sizeof frame; i++)
        if (frame[i] != (uint8_t)(depth + i))
            fail("stack", "frame %d byte %zu: found %#x", depth, i, frame[i]);
}
static void during_stack(void) { use_stack(60); } /* about 1 MiB */
static __attribute__((noinline)) void grow_stack(int depth) {
    volatile uint8_t frame[64 * 1024];
    frame[0] = frame[sizeof frame - 1] = (uint8_t)depth;
    if (depth > 0)
        grow_stack(depth - 1);
    expect("frame", frame[0], (uint8_t)depth);
}
static void check_stack(void) {
    grow_stack(70); /* 4.5 MiB: it still grows by itself */
    expect_true("it is still the kernel's stack", has_flag(vm_flags(&(int){0}), "gd"));
}

static uint8_t *old_break, *in_heap;
/* After READY: nothing else of the guest moves the break from here on. */
static void during_heap(void) {
#ifndef __GLIBC__
    skip("a C library whose sbrk gives nothing");
#endif
    in_heap = sbrk(3 * PAGE + 100);
    fill_pattern(in_heap, 3 * PAGE, 10);
    old_break = sbrk(0);
    wait_for_go();
}
static void check_heap(void) {
    expect_pattern("heap", in_heap, 3 * PAGE, 10);
    expect("brk", (uintptr_t)sbrk(0), (uintptr_t)old_break);
    expect("sbrk", (uintptr_t)sbrk(MIB), (uintptr_t)old_break);
    fill_pattern(old_break, MIB, 11);
    expect_pattern("new heap", old_break, MIB, 11);
    expect_pattern("old heap", in_heap, 3 * PAGE, 10);
    char *maps = read_text("/proc/self/maps");
    expect_true("[heap] in maps", strstr(maps, "[heap]") != NULL);
    expect("brk back", brk(old_break), 0);
}

static void set_guard(void) {
    area = map(64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must("mprotect", mprotect(area + PAGE, 62 * PAGE, RW));
    fill_pattern(area + PAGE, 62 * PAGE, 12);
}
static void check_guard(void) {
    expect_true("guard page below faults", faults(area + PAGE - 1));
    expect_true("guard page above faults", faults(area + 63 * PAGE));
    expect_pattern("between guard pages", area + PAGE, 62 * PAGE, 12);
}

/* --- reserves of terabytes --- */

#define TIB (1ul << 40)
static long page_table_kib(void) {
    char *value = status_field("VmPTE");
    long kib = atol(value);
    free(value);
    return kib;
}
static long tables_before;
static void set_reserve(void) {
    area = map(4 * TIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    alias = map(TIB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < 8; i++)
        fill_pattern(alias + i * (TIB / 8), PAGE, 14 + i);
    must("mprotect", mprotect(area + 3 * TIB, 16 * PAGE, RW));
    fill_pattern(area + 3 * TIB, 16 * PAGE, 30);
    /* No room is left above it: what is mapped next is just below, and needs tables that stay when it goes. */
    uint8_t *lowest = map(16 * TIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    while ((uint8_t *)map(4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) > lowest)
        ;
}
static void note_tables(void) {
    tables_before = page_table_kib();
    /* What asking takes is there the second time. */
    tables_before = page_table_kib();
}
static void check_reserve(void) {
    long tables = page_table_kib();
    /* After a restart what else there is has other tables. By itself, without any checkpoint, one run in 75 needs one more: the
     * stack or the heap goes on in the next 2 MiB. Reading somewhere in a reserve takes three (12 KiB). */
    long more = getenv("WF_MOVED") ? 512 : 8;
    if (tables > tables_before + more)
        fail("VmPTE", "found %ld KiB, expected %ld and at most %ld more", tables, tables_before, more);
    for (int i = 0; i < 8; i++)
        expect_pattern("page in a reserve", alias + i * (TIB / 8), PAGE, 14 + i);
    expect_pattern("pages in a PROT_NONE reserve", area + 3 * TIB, 16 * PAGE, 30);
    expect_true("reserve faults", faults(area + 2 * TIB));
    all_zero("reserve untouched", alias + TIB / 16, PAGE);
    expect_true("NORESERVE", has_flag(vm_flags(alias), "nr"));
}

/* --- places: low, high, growing down, named --- */

static void set_low(void) {
    area = mmap((void *)0x10000, 4 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (area == MAP_FAILED)
        skip("address 0x10000 may not be mapped: %s", strerror(errno));
    fill_pattern(area, 4 * PAGE, 31);
}
static void check_low(void) { expect_pattern("memory at 64 KiB", (uint8_t *)0x10000, 4 * PAGE, 31); }
static void set_high(void) {
    uintptr_t top = (1ul << 47) - PAGE;
    area = mmap((void *)(top - 4 * PAGE), 4 * PAGE, RW,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (area == MAP_FAILED)
        skip("the top of the address space may not be mapped: %s", strerror(errno));
    fill_pattern(area, 4 * PAGE, 32);
}
static void check_high(void) { expect_pattern("memory at the top", area, 4 * PAGE, 32); }

static void set_growsdown(void) {
    /* Far from everything that mmap gives by itself, so that there is room below. */
    uint8_t *place = (uint8_t *)0x100000000000;
    area = must_map("MAP_GROWSDOWN", mmap(place, 4 * PAGE, RW,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0));
    for (int i = 0; i < 32; i++)
        area[-i * (long)PAGE] = (uint8_t)(i + 1);
}
static void check_growsdown(void) {
    for (int i = 0; i < 32; i++)
        expect("page below", area[-i * (long)PAGE], (uint8_t)(i + 1));
    expect_true("MAP_GROWSDOWN", has_flag(vm_flags(area), "gd"));
    for (int i = 32; i < 64; i++)
        area[-i * (long)PAGE] = (uint8_t)(i + 1);
}

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif
static void set_named(void) {
    area = anonymous(4 * PAGE);
    if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, area, 4 * PAGE, "wayfarer guest") != 0)
        skip("no PR_SET_VMA_ANON_NAME: %s", strerror(errno));
    area[0] = 1;
}
static void check_named(void) {
    char *maps = read_text("/proc/self/maps");
    expect_true("name in maps", strstr(maps, "[anon:wayfarer guest]") != NULL);
}

/* --- code made at run time --- */

typedef int (*function)(void);
static void emit(uint8_t *at, uint32_t value) { /* mov eax, value; ret */
    at[0] = 0xb8;
    memcpy(at + 1, &value, 4);
    at[5] = 0xc3;
}
static void set_jit(void) {
    area = map(PAGE, RW | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* writable and executable */
    alias = anonymous(PAGE);                                             /* written, then executable */
    emit(area, 4711);
    emit(alias, 815);
    must("mprotect", mprotect(alias, PAGE, PROT_READ | PROT_EXEC));
}
static void check_jit(void) {
    expect("code in an rwx page", ((function)(void *)area)(), 4711);
    expect("code in an rx page", ((function)(void *)alias)(), 815);
    emit(area, 4712);
    expect("new code in an rwx page", ((function)(void *)area)(), 4712);
}
static void set_execute_only(void) {
    area = anonymous(PAGE);
    emit(area, 99);
    must("mprotect", mprotect(area, PAGE, PROT_EXEC));
}
static void check_execute_only(void) {
    expect("execute-only code", ((function)(void *)area)(), 99);
    char *flags = vm_flags(area);
    expect_true("executable", has_flag(flags, "ex"));
    expect_true("not readable", !has_flag(flags, "rd"));
}

/* Many mappings that cannot be merged. */
#define MANY 3000
static void set_many(void) {
    area = map(2 * MANY * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < MANY; i++) {
        must("mprotect", mprotect(area + 2 * i * PAGE, PAGE, RW));
        area[2 * i * PAGE] = (uint8_t)(i % 251 + 1);
    }
}
static void check_many(void) {
    for (int i = 0; i < MANY; i++)
        expect("one of many mappings", area[2 * i * PAGE], (uint8_t)(i % 251 + 1));
}

/* Large memory in one piece, in which mappings of several kinds lie side by side. */
#define CONTIGUOUS (12 * MIB)
static int count_mappings(void) {
    char *line = read_text("/proc/self/maps");
    int count = 0;
    for (; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) == 2)
            count += start < (uintptr_t)area + CONTIGUOUS && (uintptr_t)area < end;
    }
    return count;
}
static int mappings;
static void set_contiguous(void) {
    area = anonymous(CONTIGUOUS);
    make_file(MIB, 50);
    must_map("mmap", mmap(area + 6 * MIB + 3 * PAGE, MIB, RW, MAP_PRIVATE | MAP_FIXED, fd, 0));
    int memory = must("memfd_create", memfd_create("contiguous", 0));
    must("ftruncate", ftruncate(memory, MIB));
    must_map("mmap", mmap(area + 9 * MIB + 5 * PAGE, MIB, RW, MAP_PRIVATE | MAP_FIXED, memory, 0));
    fill_pattern(area, CONTIGUOUS, 51);
    must("mprotect", mprotect(area + 3 * MIB + PAGE, 2 * MIB, PROT_READ));
    must("mprotect", mprotect(area + 11 * MIB + 7 * PAGE, PAGE, PROT_NONE));
    must("MADV_DONTDUMP", madvise(area + 2 * MIB + 9 * PAGE, 3 * PAGE, MADV_DONTDUMP));
    close(fd);
    close(memory);
    mappings = count_mappings();
}
static void check_contiguous(void) {
    expect("mappings", count_mappings(), mappings);
    for (size_t at = 0; at < CONTIGUOUS; at += PAGE)
        expect_true("nobody is asked for missing pages", at % (MIB / 2) || !has_flag(vm_flags(area + at), "um"));
    must("mprotect", mprotect(area + 11 * MIB + 7 * PAGE, PAGE, PROT_READ));
    expect_pattern("memory in one piece", area, CONTIGUOUS, 51);
    must("MADV_DONTNEED", madvise(area, 2 * MIB, MADV_DONTNEED));
    all_zero("memory after MADV_DONTNEED", area, 2 * MIB);
    must("MADV_DONTNEED", madvise(area + 6 * MIB + 3 * PAGE, MIB, MADV_DONTNEED));
    expect_pattern("the file's bytes after MADV_DONTNEED", area + 6 * MIB + 3 * PAGE, MIB, 50);
}

/* A checkpoint in the middle of writing: no page may be torn or old. */
static volatile uint64_t generation;
static void during_changing(void) {
    uint64_t *words = (uint64_t *)area;
    while (!go() || generation < 50) {
        generation++;
        for (size_t i = 0; i < MIB / 8; i++)
            words[i] = generation * 0x9e3779b97f4a7c15 + i;
    }
}
static void check_changing(void) {
    uint64_t *words = (uint64_t *)area;
    for (size_t i = 0; i < MIB / 8; i++)
        expect("word", words[i], generation * 0x9e3779b97f4a7c15 + i);
}

/* What a copy-on-write child shows of a range changes all the time. */
static void during_toggling(void) {
    while (!go() || generation < 50) {
        generation++;
        for (size_t at = 0; at < 2 * MIB; at += 128 * 1024)
            must("MADV_DONTFORK", madvise(area + at, 64 * 1024, MADV_DONTFORK));
        expect_pattern("memory that no child sees", area, 64 * 1024, 1);
        must("MADV_DOFORK", madvise(area, 2 * MIB, MADV_DOFORK));
    }
}

static const struct guest guests[] = {
    {"anonymous", set_anonymous, check_anonymous, NULL},
    {"sparse", set_sparse, check_sparse, NULL},
    {"protections", set_protections, check_protections, NULL},
    {"private_file", set_private_file, check_private_file, NULL},
    {"shared_file", set_shared_file, check_shared_file, NULL},
    {"deleted_file", set_deleted_file, check_deleted_file, NULL},
    {"shared_anonymous", set_shared_anonymous, check_shared_anonymous, NULL},
    {"memfd_aliases", set_memfd_aliases, check_memfd_aliases, NULL},
    {"stack", NULL, check_stack, during_stack},
    {"heap", NULL, check_heap, during_heap},
    {"guard", set_guard, check_guard, NULL},
    {"reserve", set_reserve, check_reserve, NULL, note_tables},
    {"low", set_low, check_low, NULL},
    {"high", set_high, check_high, NULL},
    {"growsdown", set_growsdown, check_growsdown, NULL},
    {"named", set_named, check_named, NULL},
    {"jit", set_jit, check_jit, NULL},
    {"execute_only", set_execute_only, check_execute_only, NULL},
    {"many", set_many, check_many, NULL},
    {"contiguous", set_contiguous, check_contiguous, NULL},
    {"changing", set_anonymous, check_changing, during_changing},
    {"toggling", set_anonymous, check_anonymous, during_toggling},
};
GUEST_MAIN(guests)
