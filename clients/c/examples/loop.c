/*
 * Counts and stores from an event loop, without ever waiting for one operation:
 *
 *     minos serve --native 127.0.0.1:11311 &
 *     cargo xtask install-c --prefix /usr/local
 *     cc clients/c/examples/loop.c $(pkg-config --cflags --libs minos) -o loop
 *     ./loop 127.0.0.1:11311
 */
#include <minos.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { OPERATIONS = 1000 };

static int start(minos_client *client, int *index) {
    static const uint64_t initial = 1;
    minos_request request = {0};
    request.verb = MINOS_VERB_INCR;
    request.key = (minos_key){"visits", strlen("visits")};
    request.operand = 1;
    request.initial = &initial;
    request.context = index;
    return minos_start(client, &request);
}

int main(int argc, char **argv) {
    static int indexes[OPERATIONS];
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:11311";
    int started = 0, ended = 0, failed = 0;
    uint64_t highest = 0;
    minos_client *client;
    if (minos_open(address, NULL, &client) != MINOS_OK) {
        fprintf(stderr, "%s: %s\n", address, minos_error_text());
        return 1;
    }
    while (ended < OPERATIONS) {
        int before = ended;
        while (started < OPERATIONS && start(client, &indexes[started]) == MINOS_OK) started++;
        if (minos_step(client) != MINOS_OK) break;
        minos_completion completion;
        while (minos_next(client, &completion) == MINOS_OK) {
            if (completion.status != MINOS_OK) {
                fprintf(stderr, "operation %d: %s\n", (int)((int *)completion.context - indexes), minos_error_text());
                failed = 1;
            }
            if (completion.number > highest) highest = completion.number;
            minos_value_free(&completion.value);
            ended++;
        }
        /* A real program adds its other descriptors here. */
        struct pollfd watched = {.fd = minos_descriptor(client), .events = POLLIN};
        if (ended == before) poll(&watched, 1, minos_wait_ms(client));
    }
    minos_close(client);
    printf("%d visits\n", (int)highest);
    return failed || ended < OPERATIONS;
}
