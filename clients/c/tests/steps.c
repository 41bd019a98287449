/* Operations driven by an event loop, against a server, whose address is the argument. Exits with 0 if all pass. */
#include <minos.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static minos_request request(int verb, const char *key, void *context) {
    minos_request made;
    memset(&made, 0, sizeof made);
    made.verb = verb;
    made.key.bytes = key;
    made.key.length = strlen(key);
    made.context = context;
    return made;
}

/* Runs the loop until the next operation has ended. */
static minos_completion ended(minos_client *client) {
    minos_completion completion;
    memset(&completion, 0, sizeof completion);
    while (minos_next(client, &completion) == MINOS_NOT_FOUND) {
        struct pollfd watched = {minos_descriptor(client), POLLIN, 0};
        CHECK(minos_wait_ms(client) >= 0);
        CHECK(poll(&watched, 1, minos_wait_ms(client)) >= 0);
        CHECK(minos_step(client) == MINOS_OK);
    }
    return completion;
}

static void check_one_after_the_other(minos_client *client) {
    int here = 0;
    minos_completion completion;
    minos_request wanted = request(MINOS_VERB_PUT, "step", &here);
    wanted.value = "value";
    wanted.value_length = 5;
    wanted.flags = 9;
    CHECK(minos_wait_ms(client) == -1);
    CHECK(minos_start(client, &wanted) == MINOS_OK);
    completion = ended(client);
    CHECK(completion.status == MINOS_OK && completion.context == &here && completion.cas != 0);
    uint64_t cas = completion.cas;
    wanted = request(MINOS_VERB_GET, "step", NULL);
    CHECK(minos_start(client, &wanted) == MINOS_OK);
    completion = ended(client);
    CHECK(completion.status == MINOS_OK && completion.cas == cas && completion.value.flags == 9);
    CHECK(completion.value.length == 5 && memcmp(completion.value.bytes, "value", 5) == 0);
    minos_value_free(&completion.value);
    uint64_t initial = 41;
    wanted = request(MINOS_VERB_INCR, "step-number", NULL);
    wanted.operand = 1;
    CHECK(minos_start(client, &wanted) == MINOS_OK && ended(client).status == MINOS_NOT_FOUND);
    wanted.initial = &initial;
    CHECK(minos_start(client, &wanted) == MINOS_OK && ended(client).number == 41);
    CHECK(minos_start(client, &wanted) == MINOS_OK && ended(client).number == 42);
    wanted = request(MINOS_VERB_GET, "", NULL);
    CHECK(minos_start(client, &wanted) == MINOS_OK && ended(client).status == MINOS_KEY);
    CHECK(strlen(minos_error_text()) > 0);
}

enum { MANY = 5000 };

static void check_many(minos_client *client) {
    static char is_there[MANY];
    static char large[300000];
    int started = 0, full = 0;
    minos_value value = {0};
    minos_request wanted = request(MINOS_VERB_PUT, "step-large", NULL);
    wanted.value = large;
    wanted.value_length = sizeof large;
    CHECK(minos_start(client, &wanted) == MINOS_OK);
    while (started < MANY) {
        wanted = request(MINOS_VERB_GET, "step", &is_there[started]);
        minos_status status = minos_start(client, &wanted);
        if (status != MINOS_OK) {
            CHECK(status == MINOS_FULL);
            full = 1;
            break;
        }
        started++;
    }
    CHECK(full && started == 4095);
    CHECK(minos_step(client) == MINOS_OK);
    for (int at = 0; at <= started; at++) {
        minos_completion completion = ended(client);
        CHECK(completion.status == MINOS_OK);
        if (completion.context != NULL) *(char *)completion.context += 1;
        minos_value_free(&completion.value);
    }
    for (int at = 0; at < started; at++) CHECK(is_there[at] == 1);
    CHECK(minos_get(client, "step-large", 10, &value) == MINOS_OK && value.length == sizeof large);
    minos_value_free(&value);
    wanted = request(MINOS_VERB_GET, "step", is_there);
    CHECK(minos_start(client, &wanted) == MINOS_OK);
    CHECK(minos_get(client, "step", 4, &value) == MINOS_OK);
    minos_value_free(&value);
    minos_completion completion = ended(client);
    CHECK(completion.context == is_there);
    minos_value_free(&completion.value);
    CHECK(minos_next(client, &completion) == MINOS_NOT_FOUND);
}

static void check_arguments(minos_client *client) {
    minos_completion completion;
    minos_request wanted = request(99, "a", NULL);
    uint64_t count = 0;
    CHECK(minos_start(client, &wanted) == MINOS_ARGUMENT);
    wanted.verb = 0;
    CHECK(minos_start(client, &wanted) == MINOS_ARGUMENT);
    CHECK(minos_start(client, NULL) == MINOS_ARGUMENT && minos_start(NULL, &wanted) == MINOS_ARGUMENT);
    CHECK(minos_next(client, NULL) == MINOS_ARGUMENT && minos_next(NULL, &completion) == MINOS_ARGUMENT);
    CHECK(minos_step(NULL) == MINOS_ARGUMENT && minos_descriptor(NULL) == -1 && minos_wait_ms(NULL) == -1);
    CHECK(minos_counter(client, "completed", &count) == MINOS_OK && count > 4096);
    CHECK(minos_counter(client, "nothing", &count) == MINOS_NOT_FOUND);
    CHECK(strchr(minos_version(), '.') != NULL);
}

/* Nothing listens there. */
static void check_time_outs(void) {
    minos_client *client = NULL;
    uint64_t round_trip_ns = 0;
    CHECK(minos_open("127.0.0.1:9", NULL, &client) == MINOS_OK);
    minos_request wanted = request(MINOS_VERB_PING, "", NULL);
    wanted.timeout_ms = 30;
    CHECK(minos_start(client, &wanted) == MINOS_OK && ended(client).status == MINOS_TIMED_OUT);
    CHECK(minos_timeout_ms(client, 30) == MINOS_OK && minos_ping(client, &round_trip_ns) == MINOS_TIMED_OUT);
    minos_close(client);
}

int main(int argc, char **argv) {
    minos_client *client = NULL;
    minos_options *options = minos_options_new();
    if (argc < 2) return 2;
    /* A busy machine may be slow. */
    CHECK(minos_options_timeout_ms(options, 20000) == MINOS_OK);
    CHECK(minos_open(argv[1], options, &client) == MINOS_OK);
    minos_options_free(options);
    if (client == NULL) return 1;
    check_one_after_the_other(client);
    check_many(client);
    check_arguments(client);
    check_time_outs();
    minos_close(client);
    if (failures == 0) printf("all is well\n");
    return failures == 0 ? 0 : 1;
}
