/* A program in C that reports: its first argument is the score. */
#include <stdio.h>

int main(int argc, char **argv) {
    for (int step = 1; step <= 3; step++) {
        printf("{\"steps\": %d, \"score\": %s}\n", 10 * step, argc > 1 ? argv[1] : "0");
        fflush(stdout);
    }
    return 0;
}
