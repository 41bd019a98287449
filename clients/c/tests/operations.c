/* Every function of minos.h against a server, whose address is the argument. Exits with 0 if every check passes. */
#include <minos.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define KEY(text) (text), strlen(text)

static int is(const minos_value *value, const char *expected) {
    return value->length == strlen(expected) && memcmp(value->bytes, expected, value->length) == 0;
}

static void check_stores(minos_client *client) {
    minos_value value = {0};
    uint64_t cas = 0, later = 0;
    CHECK(minos_get(client, KEY("a"), &value) == MINOS_NOT_FOUND);
    CHECK(value.bytes == NULL && value.length == 0);
    CHECK(minos_replace(client, KEY("a"), KEY("x"), 0, 0, NULL) == MINOS_NOT_STORED);
    CHECK(minos_put(client, KEY("a"), KEY("one"), 0, 7, &cas) == MINOS_OK && cas != 0);
    CHECK(minos_add(client, KEY("a"), KEY("two"), 0, 0, NULL) == MINOS_NOT_STORED);
    CHECK(minos_append(client, KEY("a"), KEY("!"), NULL) == MINOS_OK);
    CHECK(minos_prepend(client, KEY("a"), KEY("<"), &later) == MINOS_OK && later != cas);
    CHECK(minos_get(client, KEY("a"), &value) == MINOS_OK);
    CHECK(is(&value, "<one!") && value.flags == 7 && value.cas == later);
    minos_value_free(&value);
    CHECK(minos_compare_and_swap(client, KEY("a"), KEY("no"), cas, 0, 0, NULL) == MINOS_EXISTS);
    CHECK(minos_compare_and_swap(client, KEY("a"), KEY("yes"), later, 0, 0, &cas) == MINOS_OK);
    CHECK(minos_compare_and_swap(client, KEY("none"), KEY("x"), 1, 0, 0, NULL) == MINOS_NOT_FOUND);
    CHECK(minos_touch(client, KEY("a"), 100) == MINOS_OK);
    CHECK(minos_touch(client, KEY("none"), 100) == MINOS_NOT_FOUND);
    CHECK(minos_get_and_touch(client, KEY("a"), -1, &value) == MINOS_OK && is(&value, "yes"));
    minos_value_free(&value);
    CHECK(minos_get(client, KEY("a"), &value) == MINOS_NOT_FOUND);
    CHECK(minos_put(client, KEY("empty"), NULL, 0, 0, 0, NULL) == MINOS_OK);
    CHECK(minos_get(client, KEY("empty"), &value) == MINOS_OK && value.length == 0);
    CHECK(minos_delete(client, KEY("empty")) == MINOS_OK);
    CHECK(minos_delete(client, KEY("empty")) == MINOS_NOT_FOUND);
}

static void check_numbers(minos_client *client) {
    uint64_t number = 0;
    CHECK(minos_incr(client, KEY("n"), 1, &number) == MINOS_NOT_FOUND);
    CHECK(minos_incr_or_create(client, KEY("n"), 5, 10, 0, &number) == MINOS_OK && number == 10);
    CHECK(minos_incr_or_create(client, KEY("n"), 5, 10, 0, &number) == MINOS_OK && number == 15);
    CHECK(minos_incr(client, KEY("n"), 7, &number) == MINOS_OK && number == 22);
    CHECK(minos_decr(client, KEY("n"), 2, NULL) == MINOS_OK);
    CHECK(minos_decr(client, KEY("n"), 100, &number) == MINOS_OK && number == 0);
    CHECK(minos_decr_or_create(client, KEY("m"), 1, 3, 0, &number) == MINOS_OK && number == 3);
    CHECK(minos_put(client, KEY("text"), KEY("abc"), 0, 0, NULL) == MINOS_OK);
    CHECK(minos_incr(client, KEY("text"), 1, &number) == MINOS_NOT_A_NUMBER);
    CHECK(strlen(minos_error_text()) > 0);
}

static void check_large(minos_client *client) {
    const size_t length = 1000000;
    unsigned char *bytes = malloc(length);
    minos_value value = {0};
    for (size_t at = 0; at < length; at++) bytes[at] = (unsigned char)(at * 31 >> 3);
    CHECK(minos_put(client, KEY("large"), bytes, length, 0, 1, NULL) == MINOS_OK);
    CHECK(minos_get(client, KEY("large"), &value) == MINOS_OK);
    CHECK(value.length == length && memcmp(value.bytes, bytes, length) == 0 && value.flags == 1);
    minos_value_free(&value);
    free(bytes);
}

enum { MANY = 200 };

static void check_many(minos_client *client) {
    static char names[MANY][16];
    static minos_key keys[MANY];
    static minos_item items[MANY];
    static minos_value values[MANY];
    static minos_status statuses[MANY];
    for (int at = 0; at < MANY; at++) {
        size_t length = (size_t)snprintf(names[at], sizeof names[at], "many-%d", at);
        keys[at] = (minos_key){names[at], length};
        items[at] = (minos_item){keys[at], names[at], length};
    }
    /* The last one is not stored. */
    CHECK(minos_put_many(client, items, MANY - 1, 0, 3, statuses) == MINOS_OK && statuses[MANY - 2] == MINOS_OK);
    CHECK(minos_get_many(client, keys, MANY, values, statuses) == MINOS_OK);
    for (int at = 0; at < MANY - 1; at++) {
        CHECK(statuses[at] == MINOS_OK && is(&values[at], names[at]) && values[at].flags == 3);
        minos_value_free(&values[at]);
    }
    CHECK(statuses[MANY - 1] == MINOS_NOT_FOUND && values[MANY - 1].bytes == NULL);
    CHECK(minos_delete_many(client, keys, MANY, statuses) == MINOS_OK);
    CHECK(statuses[0] == MINOS_OK && statuses[MANY - 1] == MINOS_NOT_FOUND);
    CHECK(minos_delete_many(client, NULL, 0, NULL) == MINOS_OK);
    /* An invalid key does not affect the others. */
    keys[1].length = 0;
    CHECK(minos_delete_many(client, keys, 3, statuses) == MINOS_KEY);
    CHECK(statuses[0] == MINOS_NOT_FOUND && statuses[1] == MINOS_KEY && statuses[2] == MINOS_NOT_FOUND);
}

static void check_arguments(minos_client *client) {
    minos_value value = {0};
    minos_client *none = NULL;
    CHECK(minos_get(NULL, KEY("a"), &value) == MINOS_ARGUMENT);
    CHECK(minos_get(client, NULL, 1, &value) == MINOS_ARGUMENT);
    CHECK(minos_get(client, KEY("a"), NULL) == MINOS_ARGUMENT);
    CHECK(minos_put(client, KEY("a"), NULL, 1, 0, 0, NULL) == MINOS_ARGUMENT);
    CHECK(minos_get(client, "", 0, &value) == MINOS_KEY);
    CHECK(minos_get_many(client, NULL, 1, &value, NULL) == MINOS_ARGUMENT);
    minos_key key = {"a", 1};
    value.bytes = (uint8_t *)&value;
    value.length = 1;
    CHECK(minos_get_many(NULL, &key, 1, &value, NULL) == MINOS_ARGUMENT);
    CHECK(value.bytes == NULL && value.length == 0);
    CHECK(minos_connect(NULL, NULL, &none) == MINOS_ARGUMENT && none == NULL);
    CHECK(minos_connect("127.0.0.1:1", NULL, NULL) == MINOS_ARGUMENT);
    CHECK(minos_connect("nothing://x", NULL, &none) == MINOS_ADDRESS && none == NULL);
    CHECK(minos_options_timeout_ms(NULL, 1) == MINOS_ARGUMENT);
    minos_close(NULL);
    minos_options_free(NULL);
    minos_value_free(NULL);
    CHECK(strcmp(minos_status_text(MINOS_BUSY), minos_status_text(-12345)) != 0);
}

static const char SECRET[] = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

static void check_options(void) {
    minos_options *options = minos_options_new();
    minos_client *client = NULL;
    CHECK(minos_options_timeout_ms(options, 0) == MINOS_OPTION);
    CHECK(minos_options_timeout_ms(options, 100) == MINOS_OK);
    CHECK(minos_options_datagram_bytes_max(options, 100) == MINOS_OPTION);
    CHECK(minos_options_datagram_bytes_max(options, 1200) == MINOS_OK);
    CHECK(minos_options_value_bytes_max(options, 1 << 20) == MINOS_OK);
    CHECK(minos_options_in_flight_max(options, 8) == MINOS_OK);
    CHECK(minos_options_all_writes_once(options, true) == MINOS_OK);
    CHECK(minos_options_reads(options, "any") == MINOS_OPTION);
    CHECK(minos_options_reads(options, NULL) == MINOS_ARGUMENT);
    CHECK(minos_options_reads(options, "two-choices") == MINOS_OK);
    CHECK(minos_options_secret(options, NULL, 1) == MINOS_ARGUMENT);
    CHECK(minos_options_secret(options, "0123456789abcdef", 16) == MINOS_OPTION);
    CHECK(minos_options_secret(options, SECRET, strlen(SECRET)) == MINOS_OK);
    /* Nothing listens there. */
    CHECK(minos_connect("127.0.0.1:9", options, &client) < 0 && client == NULL);
    minos_options_free(options);
}

int main(int argc, char **argv) {
    minos_client *client = NULL;
    minos_options *options = minos_options_new();
    if (argc < 2) return 2;
    /* A busy machine may be slow. */
    CHECK(minos_options_timeout_ms(options, 20000) == MINOS_OK);
    if (argc > 2) CHECK(minos_options_secret(options, argv[2], strlen(argv[2])) == MINOS_OK);
    CHECK(minos_connect(argv[1], options, &client) == MINOS_OK);
    minos_options_free(options);
    if (client == NULL) return 1;
    uint64_t round_trip_ns = 0;
    minos_value lines = {0};
    CHECK(minos_ping(client, &round_trip_ns) == MINOS_OK && round_trip_ns > 0);
    CHECK(minos_stats(client, NULL, &lines) == MINOS_OK && lines.length > 4);
    CHECK(lines.bytes != NULL && memchr(lines.bytes, '\n', lines.length) != NULL);
    minos_value_free(&lines);
    check_stores(client);
    check_numbers(client);
    check_large(client);
    check_many(client);
    CHECK(minos_flush_all(client, 100) == MINOS_OK && minos_get(client, KEY("text"), &lines) == MINOS_OK);
    minos_value_free(&lines);
    CHECK(minos_flush_all(client, 0) == MINOS_OK && minos_get(client, KEY("text"), &lines) == MINOS_NOT_FOUND);
    check_arguments(client);
    check_options();
    minos_close(client);
    if (failures == 0) printf("all is well\n");
    return failures == 0 ? 0 : 1;
}
