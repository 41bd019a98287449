/* What the crate needs of UCX, whose parameters are structures with masks, as plain functions.
   Functions return a ucs_status_t, 0 if they succeed. A worker and all made with it belong to one thread at a time. */

#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

/* UCX within this process, or within this part of it. */
typedef struct {
    ucp_context_h context;
    ucp_worker_h worker;
} minos_ucx;

/* Registered memory, and the key by which others read it. */
typedef struct {
    ucp_mem_h handle;
    void *base;
    size_t bytes;
    void *key;
    size_t key_bytes;
} minos_ucx_memory;

/* Memory of a peer. */
typedef struct {
    ucp_ep_h endpoint;
    ucp_rkey_h key;
} minos_ucx_peer;

/* A read of some ranges: those under way, and the last error. As `RawRead` in Rust. */
typedef struct {
    uint32_t pending;
    int32_t status;
} minos_ucx_read;

/* What a hangup does. When its library is loaded, UCX takes the signal for a wish to log all that it does. */
static struct sigaction hangup;

static void keep_hangup(void)
{
    sigaction(SIGHUP, NULL, &hangup);
}

/* Called before any library begins. */
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = keep_hangup;

__attribute__((constructor)) static void restore_hangup(void)
{
    sigaction(SIGHUP, &hangup, NULL);
}

unsigned minos_ucx_version(void)
{
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    return major << 16 | minor;
}

const char *minos_ucx_status_text(int status)
{
    return ucs_status_string((ucs_status_t)status);
}

static ucs_status_t open_context(const char *transports, int wakes, ucp_context_h *context)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_RMA | (wakes ? UCP_FEATURE_WAKEUP : 0)};
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    if (transports != NULL)
        status = ucp_config_modify(config, "TLS", transports);
    if (status == UCS_OK)
        status = ucp_init(&params, config, context);
    ucp_config_release(config);
    return status;
}

/* `transports` as in UCX_TLS; NULL leaves them to the environment. With `wakes` there is a descriptor. */
int minos_ucx_open(const char *transports, int wakes, minos_ucx **out)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    minos_ucx *ucx = malloc(sizeof(*ucx));
    ucs_status_t status;
    if (ucx == NULL)
        return UCS_ERR_NO_MEMORY;
    status = open_context(transports, wakes, &ucx->context);
    if (status == UCS_OK) {
        status = ucp_worker_create(ucx->context, &params, &ucx->worker);
        if (status == UCS_OK) {
            *out = ucx;
            return UCS_OK;
        }
        ucp_cleanup(ucx->context);
    }
    free(ucx);
    return status;
}

void minos_ucx_close(minos_ucx *ucx)
{
    ucp_worker_destroy(ucx->worker);
    ucp_cleanup(ucx->context);
    free(ucx);
}

unsigned minos_ucx_progress(minos_ucx *ucx)
{
    return ucp_worker_progress(ucx->worker);
}

/* The descriptor that is readable after minos_ucx_arm once there is something to progress. */
int minos_ucx_descriptor(minos_ucx *ucx, int *descriptor)
{
    return ucp_worker_get_efd(ucx->worker, descriptor);
}

/* False if there is something to progress already. */
int minos_ucx_arm(minos_ucx *ucx)
{
    return ucp_worker_arm(ucx->worker) == UCS_OK;
}

/* Where peers find this worker; to be released. */
int minos_ucx_address(minos_ucx *ucx, void **address, size_t *bytes)
{
    return ucp_worker_get_address(ucx->worker, (ucp_address_t **)address, bytes);
}

void minos_ucx_release_address(minos_ucx *ucx, void *address)
{
    ucp_worker_release_address(ucx->worker, address);
}

/* Allocates zeroed memory that all transports can read, because those over shared memory register no other. */
int minos_ucx_allocate(minos_ucx *ucx, size_t bytes, minos_ucx_memory *out)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length = bytes,
                                   .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t found = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH};
    ucs_status_t status = ucp_mem_map(ucx->context, &params, &out->handle);
    if (status != UCS_OK)
        return status;
    status = ucp_mem_query(out->handle, &found);
    if (status == UCS_OK)
        status = ucp_rkey_pack(ucx->context, out->handle, &out->key, &out->key_bytes);
    if (status != UCS_OK)
        ucp_mem_unmap(ucx->context, out->handle);
    out->base = found.address;
    out->bytes = found.length;
    return status;
}

void minos_ucx_free(minos_ucx *ucx, minos_ucx_memory *memory)
{
    ucp_rkey_buffer_release(memory->key);
    ucp_mem_unmap(ucx->context, memory->handle);
}

static void finish(minos_ucx *ucx, ucs_status_ptr_t request, unsigned rounds)
{
    if (request == NULL || UCS_PTR_IS_ERR(request))
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && rounds-- > 0)
        ucp_worker_progress(ucx->worker);
    ucp_request_free(request);
}

void minos_ucx_disconnect(minos_ucx *ucx, minos_ucx_peer *peer, unsigned rounds)
{
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_rkey_destroy(peer->key);
    finish(ucx, ucp_ep_close_nbx(peer->endpoint, &params), rounds);
}

/* Reads of a peer that has failed end with an error. */
static void failed(void *data, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)data, (void)endpoint, (void)status;
}

/* With `watches` it is noticed that the peer fails, of which transports over shared memory are not capable. */
int minos_ucx_connect(minos_ucx *ucx, const void *address, const void *key, int watches, minos_ucx_peer *out)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .address = address,
                              .err_mode = watches ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
                              .err_handler = {.cb = failed}};
    ucp_request_param_t close = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_t status = ucp_ep_create(ucx->worker, &params, &out->endpoint);
    if (status != UCS_OK)
        return status;
    status = ucp_ep_rkey_unpack(out->endpoint, key, &out->key);
    if (status != UCS_OK)
        finish(ucx, ucp_ep_close_nbx(out->endpoint, &close), 1000);
    return status;
}

/* Where this process can load the peer's memory at `remote` itself; NULL if it cannot. */
const void *minos_ucx_pointer(const minos_ucx_peer *peer, uint64_t remote)
{
    void *pointer;
    return ucp_rkey_ptr(peer->key, remote, &pointer) == UCS_OK ? pointer : NULL;
}

static void ended(void *request, ucs_status_t status, void *data)
{
    minos_ucx_read *read = data;
    if (status != UCS_OK)
        read->status = status;
    read->pending--;
    ucp_request_free(request);
}

/* Begins to copy memory of a peer to `buffer`; until it has ended, `read` counts it. */
void minos_ucx_get(const minos_ucx_peer *peer, void *buffer, size_t bytes, uint64_t remote, minos_ucx_read *read)
{
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                  .cb.send = ended,
                                  .user_data = read};
    ucs_status_ptr_t request = ucp_get_nbx(peer->endpoint, buffer, bytes, remote, peer->key, &params);
    if (UCS_PTR_IS_ERR(request))
        read->status = UCS_PTR_STATUS(request);
    else if (request != NULL)
        read->pending++;
}
