/* Children of a fork make clients of their own. Exits with 0 if these do not draw the same random numbers. */
#include <arpa/inet.h>
#include <minos.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Where the header of a Hello ends, and its nonce begins. */
#define NONCE_AT 48
#define NONCE_BYTES 8

/* Nothing answers there. */
static void try_to_connect(const char *address) {
    minos_client *client = NULL;
    minos_options *options = minos_options_new();
    CHECK(minos_options_timeout_ms(options, 1000) == MINOS_OK);
    CHECK(minos_connect(address, options, &client) == MINOS_TIMED_OUT && client == NULL);
    minos_options_free(options);
}

/* Reads all that has arrived; hello gets the first. */
static void receive(int descriptor, unsigned char *hello) {
    unsigned char datagram[2048];
    int count = 0;
    while (recv(descriptor, datagram, sizeof datagram, MSG_DONTWAIT) >= NONCE_AT + NONCE_BYTES) {
        if (count++ == 0) memcpy(hello, datagram, NONCE_AT + NONCE_BYTES);
    }
    CHECK(count > 0);
}

int main(void) {
    unsigned char hellos[2][NONCE_AT + NONCE_BYTES];
    char address[64];
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof place;
    int silent = socket(AF_INET, SOCK_DGRAM, 0);
    memset(hellos, 0, sizeof hellos);
    CHECK(bind(silent, (struct sockaddr *)&place, length) == 0);
    CHECK(getsockname(silent, (struct sockaddr *)&place, &length) == 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(place.sin_port));
    /* The children inherit all that a first client has left in this thread. */
    try_to_connect(address);
    receive(silent, hellos[0]);
    for (int child = 0; child < 2; child++) {
        int status = 0;
        pid_t id = fork();
        if (id == 0) {
            try_to_connect(address);
            _exit(failures);
        }
        CHECK(waitpid(id, &status, 0) == id && status == 0);
        receive(silent, hellos[child]);
    }
    CHECK(memcmp(hellos[0] + NONCE_AT, hellos[1] + NONCE_AT, NONCE_BYTES) != 0);
    if (failures == 0) printf("all is well\n");
    return failures == 0 ? 0 : 1;
}
