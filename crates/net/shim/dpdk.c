/* What the crate needs of DPDK, much of which is inline or in large structures, as plain functions.
   Functions return 0, or an errno below 0, unless they say otherwise. A queue belongs to one thread at a time. */

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Most frames of a call. */
#define BURST 32
/* Bytes of a packet, as FRAME_BYTES in Rust. */
#define ROOM (2048 + 64)
/* Free packets that a thread keeps. */
#define CACHE 256

/* A packet in one piece: `length` bytes at `bytes`, where there is room for more. As `RawFrame` in Rust. */
typedef struct {
    struct rte_mbuf *packet;
    uint8_t *bytes;
    uint32_t length;
} minos_dpdk_frame;

/* What a device shall have. As `Wanted` in Rust. */
typedef struct {
    uint16_t receive_queues;
    uint16_t send_queues;
    /* Packets that a queue may hold. */
    uint16_t descriptors;
    /* Packets that this program may hold at the same time. */
    uint32_t packets_held;
} minos_dpdk_wanted;

/* A device at work. As `Found` in Rust. */
typedef struct {
    struct rte_mempool *pool;
    uint64_t pool_bytes;
    uint32_t room_bytes;
    uint16_t port;
    uint16_t mtu;
    uint16_t receive_queues;
    uint16_t send_queues;
    uint8_t mac[6];
    char driver[32];
} minos_dpdk_found;

const char *minos_dpdk_error_text(int error)
{
    return rte_strerror(error < 0 ? -error : error);
}

/* To be called once in a process. */
int minos_dpdk_init(int count, char **arguments)
{
    return rte_eal_init(count, arguments) < 0 ? -rte_errno : 0;
}

/* Makes a device of a virtual driver. */
int minos_dpdk_create(const char *name, const char *arguments)
{
    return rte_eal_hotplug_add("vdev", name, arguments);
}

/* Gives the calling thread a cache of free packets. */
int minos_dpdk_enter_thread(void)
{
    return rte_thread_register() < 0 ? -rte_errno : 0;
}

void minos_dpdk_leave_thread(void)
{
    rte_thread_unregister();
}

static int set_queues(const minos_dpdk_wanted *wanted, const struct rte_eth_dev_info *info, minos_dpdk_found *out)
{
    uint16_t port = out->port, sent = wanted->descriptors, received = wanted->descriptors;
    int socket = rte_eth_dev_socket_id(port), status = rte_eth_dev_adjust_nb_rx_tx_desc(port, &received, &sent);
    struct rte_eth_txconf send_conf = info->default_txconf;
    /* Each thread keeps up to one and a half times its cache. */
    unsigned held = wanted->packets_held + 2 * CACHE * (out->receive_queues + out->send_queues);
    unsigned count = received * out->receive_queues + sent * out->send_queues + held;
    char name[RTE_MEMPOOL_NAMESIZE];
    if (status != 0)
        return status;
    snprintf(name, sizeof(name), "minos%u", port);
    out->pool = rte_pktmbuf_pool_create(name, count, CACHE, 0, RTE_PKTMBUF_HEADROOM + ROOM, socket);
    if (out->pool == NULL)
        return -rte_errno;
    out->room_bytes = rte_pktmbuf_data_room_size(out->pool) - RTE_PKTMBUF_HEADROOM;
    out->pool_bytes = (uint64_t)count * (sizeof(struct rte_mbuf) + rte_pktmbuf_data_room_size(out->pool));
    /* Bursts mix packets of all threads' caches, which come from one pool. */
    send_conf.offloads = 0;
    for (uint16_t queue = 0; status >= 0 && queue < out->receive_queues; queue++)
        status = rte_eth_rx_queue_setup(port, queue, received, socket, NULL, out->pool);
    for (uint16_t queue = 0; status >= 0 && queue < out->send_queues; queue++)
        status = rte_eth_tx_queue_setup(port, queue, sent, socket, &send_conf);
    return status;
}

static uint16_t least(uint16_t one, uint16_t other)
{
    return one < other ? one : other;
}

static int configure(const minos_dpdk_wanted *wanted, minos_dpdk_found *out)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf = {0};
    struct rte_ether_addr mac;
    int status = rte_eth_dev_info_get(out->port, &info);
    if (status != 0)
        return status;
    out->receive_queues = least(wanted->receive_queues, info.max_rx_queues);
    out->send_queues = least(wanted->send_queues, info.max_tx_queues);
    snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name);
    conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_IPV4);
    if (out->receive_queues > 1 && conf.rx_adv_conf.rss_conf.rss_hf != 0)
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    status = rte_eth_dev_configure(out->port, out->receive_queues, out->send_queues, &conf);
    if (status == 0)
        status = rte_eth_macaddr_get(out->port, &mac);
    if (status == 0)
        status = rte_eth_dev_get_mtu(out->port, &out->mtu);
    memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
    return status == 0 ? set_queues(wanted, &info, out) : status;
}

/* Lets the device of this name receive and send. */
int minos_dpdk_open(const char *name, const minos_dpdk_wanted *wanted, minos_dpdk_found *out)
{
    int status = rte_eth_dev_get_port_by_name(name, &out->port);
    if (status == 0)
        status = configure(wanted, out);
    return status == 0 ? rte_eth_dev_start(out->port) : status;
}

/* 1 if there is a link, or a peer. */
int minos_dpdk_is_up(uint16_t port)
{
    struct rte_eth_link link = {0};
    return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/* Frames that were dropped, because a queue was full, and because there was no packet to hold them. */
int minos_dpdk_dropped(uint16_t port, uint64_t *queue_full, uint64_t *no_packet)
{
    struct rte_eth_stats stats;
    int status = rte_eth_stats_get(port, &stats);
    *queue_full = status == 0 ? stats.imissed : 0;
    *no_packet = status == 0 ? stats.rx_nombuf : 0;
    return status;
}

/* Steers datagrams for an address to a queue. Both are in the order of the network. */
int minos_dpdk_steer(uint16_t port, uint32_t ip, uint16_t udp_port, uint16_t queue)
{
    struct rte_flow_attr attributes = {.ingress = 1};
    struct rte_flow_item_ipv4 ipv4 = {.hdr.dst_addr = ip}, ipv4_mask = {.hdr.dst_addr = UINT32_MAX};
    struct rte_flow_item_udp udp = {.hdr.dst_port = udp_port}, udp_mask = {.hdr.dst_port = UINT16_MAX};
    struct rte_flow_action_queue target = {.index = queue};
    struct rte_flow_item pattern[] = {
        {.type = RTE_FLOW_ITEM_TYPE_ETH},
        {.type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &ipv4, .mask = &ipv4_mask},
        {.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &udp, .mask = &udp_mask},
        {.type = RTE_FLOW_ITEM_TYPE_END},
    };
    struct rte_flow_action actions[] = {
        {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &target},
        {.type = RTE_FLOW_ACTION_TYPE_END},
    };
    struct rte_flow_error error;
    return rte_flow_create(port, &attributes, pattern, actions, &error) == NULL ? -rte_errno : 0;
}

/* Receives at most `count` frames, at most BURST, and returns their number. One in several pieces has length 0. */
uint16_t minos_dpdk_receive(uint16_t port, uint16_t queue, minos_dpdk_frame *frames, uint16_t count)
{
    struct rte_mbuf *packets[BURST];
    uint16_t received = rte_eth_rx_burst(port, queue, packets, count);
    for (uint16_t at = 0; at < received; at++) {
        struct rte_mbuf *packet = packets[at];
        frames[at].packet = packet;
        frames[at].bytes = rte_pktmbuf_mtod(packet, uint8_t *);
        frames[at].length = packet->nb_segs == 1 ? rte_pktmbuf_data_len(packet) : 0;
    }
    return received;
}

/* Allocates `count` frames with all their room, at most BURST, or none; returns 0 if there are some. */
int minos_dpdk_allocate(const minos_dpdk_found *device, minos_dpdk_frame *frames, uint16_t count)
{
    struct rte_mbuf *packets[BURST];
    int status = rte_pktmbuf_alloc_bulk(device->pool, packets, count);
    for (uint16_t at = 0; status == 0 && at < count; at++) {
        frames[at].packet = packets[at];
        frames[at].bytes = rte_pktmbuf_mtod(packets[at], uint8_t *);
        frames[at].length = device->room_bytes;
    }
    return status;
}

/* Sends `count` frames, at most BURST. Returns the number of those that leave; the others are freed. */
uint16_t minos_dpdk_send(uint16_t port, uint16_t queue, const minos_dpdk_frame *frames, uint16_t count)
{
    struct rte_mbuf *packets[BURST];
    for (uint16_t at = 0; at < count; at++) {
        packets[at] = frames[at].packet;
        packets[at]->data_len = frames[at].length;
        packets[at]->pkt_len = frames[at].length;
    }
    uint16_t sent = rte_eth_tx_burst(port, queue, packets, count);
    if (sent < count)
        rte_pktmbuf_free_bulk(packets + sent, count - sent);
    return sent;
}

/* Frees `count` frames, at most BURST. */
void minos_dpdk_free(const minos_dpdk_frame *frames, uint16_t count)
{
    struct rte_mbuf *packets[BURST];
    for (uint16_t at = 0; at < count; at++)
        packets[at] = frames[at].packet;
    rte_pktmbuf_free_bulk(packets, count);
}
