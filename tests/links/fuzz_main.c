/* Runs the fuzz target on random inputs, for compilers without libFuzzer: fuzz_main SEED COUNT. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int count, char **arguments)
{
    if (count != 3) {
        fprintf(stderr, "usage: fuzz_main SEED COUNT\n");
        return 2;
    }
    uint64_t state = strtoull(arguments[1], NULL, 10) * 2654435761u + 1;
    for (long left = strtol(arguments[2], NULL, 10); left > 0; left--) {
        uint8_t input[600];
        size_t size = 0;
        do {
            state = state * 6364136223846793005u + 1442695040888963407u;
            input[size++] = (uint8_t)(state >> 56);
            if (size % 7 == 1 && state >> 40 & 1) {
                input[size - 1] &= 7; /* more operations with small arguments */
            }
        } while (size < sizeof input && (state >> 33 & 0x1FF) != 0);
        LLVMFuzzerTestOneInput(input, size);
    }
    return 0;
}
