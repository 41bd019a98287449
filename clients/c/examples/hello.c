/*
 * Stores a value and reads it again:
 *
 *     minos serve --native 127.0.0.1:11311 &
 *     cargo xtask install-c --prefix /usr/local
 *     cc clients/c/examples/hello.c $(pkg-config --cflags --libs minos) -o hello
 *     ./hello 127.0.0.1:11311
 */
#include <minos.h>
#include <stdio.h>

int main(int argc, char **argv) {
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:11311";
    minos_client *client;
    if (minos_connect(address, NULL, &client) != MINOS_OK) {
        fprintf(stderr, "%s: %s\n", address, minos_error_text());
        return 1;
    }
    int failed = 1;
    minos_value value = {0};
    if (minos_put(client, "greeting", 8, "hello", 5, 60, 0, NULL) != MINOS_OK) {
        fprintf(stderr, "put: %s\n", minos_error_text());
    } else if (minos_get(client, "greeting", 8, &value) != MINOS_OK) {
        fprintf(stderr, "get: %s\n", minos_error_text());
    } else {
        printf("%.*s\n", (int)value.length, (const char *)value.bytes);
        failed = 0;
    }
    minos_value_free(&value);
    minos_close(client);
    return failed;
}
