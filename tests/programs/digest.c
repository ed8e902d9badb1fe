/* Statically linked with musl: a checksum over memory that keeps changing. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    size_t len = 8 << 20;
    uint64_t *words = malloc(len), sum = 1;
    memset(words, 0, len);
    for (int turn = 0; turn < 300; turn++) {
        for (size_t i = 0; i < len / 8; i++) {
            sum = sum * 6364136223846793005u + 1442695040888963407u + i;
            words[(sum >> 20) % (len / 8)] ^= sum;
        }
        if (turn % 10 == 0) {
            printf("%d %016llx\n", turn, (unsigned long long)sum);
            fflush(stdout);
        }
    }
    for (size_t i = 0; i < len / 8; i++)
        sum = sum * 31 + words[i];
    printf("end %016llx\n", (unsigned long long)sum);
    return 0;
}
