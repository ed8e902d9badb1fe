/* Memory of which every second page has contents: 131072 runs of a page each in a GiB. */
#include "guest.h"

#define LEN (1ul << 30)
#define STEP (2 * 4096ul)

static unsigned char *area;

static unsigned char of(unsigned long at) {
    return 1 + at / STEP % 251;
}

static void set_pages(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    area = must_map("a GiB", mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags, -1, 0));
    madvise(area, LEN, MADV_NOHUGEPAGE);
    for (unsigned long at = 0; at < LEN; at += STEP)
        area[at] = area[at + 4095] = of(at);
}

static void check_pages(void) {
    unsigned char there[64];
    for (unsigned long at = 0; at < LEN; at += STEP)
        if (area[at] != of(at) || area[at + 4095] != of(at) || area[at + 1])
            fail("page", "found %d %d %d, expected %d 0 %d", area[at], area[at + 1], area[at + 4095], of(at), of(at));
    /* Nobody has made those that were not there. */
    for (unsigned long at = 0; at < LEN; at += 64 * 4096) {
        expect("mincore", mincore(area + at, 64 * 4096, there), 0);
        for (int page = 1; page < 64; page += 2)
            expect("a page that was never touched", there[page] & 1, 0);
    }
}

static const struct guest guests[] = {{"scattered", set_pages, check_pages, NULL}};
GUEST_MAIN(guests)
