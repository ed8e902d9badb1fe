// Has so many MiB, half random, half compressible, changes 10 MB of them in a second, one after the other, and says how long it has stood still.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t size = (size_t)atoi(argv[1]) << 20, at = 0;
    int changes = atoi(argv[2]);
    char *memory = malloc(size);
    unsigned long x = 88172645463325252ul, *words = (unsigned long *)memory;
    for (size_t i = 0; i < size / 8; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        words[i] = i / 512 % 2 ? x : i;
    }
    printf("ready\n");
    fflush(stdout);
    double last = now(), longest = 0;
    for (unsigned step = 0; access("enough", F_OK); step++) {
        for (int page = 0; changes && page < 10; page++, at = (at + 4096) % size) memory[at]++;
        struct timespec pause = {0, 4000000};
        nanosleep(&pause, 0);
        double time = now();
        if (time - last > longest) longest = time - last;
        last = time;
        if (step % 50 == 0 && !access("say", F_OK)) {
            unlink("say");
            printf("%.1f\n", longest * 1e3);
            fflush(stdout);
            longest = 0;
            last = now();
        }
    }
    return 0;
}
