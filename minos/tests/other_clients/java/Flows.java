import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanCursor;
import io.lettuce.core.SetArgs;
import io.lettuce.core.SslOptions;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.ExpireArgs;
import io.lettuce.core.protocol.ProtocolVersion;
import java.io.File;
import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.utils.AddrUtil;
import net.spy.memcached.BinaryConnectionFactory;
import net.spy.memcached.CASResponse;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.args.ExpiryOption;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.LCSParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/** The flows of jedis, lettuce, spymemcached and xmemcached against a server whose addresses are in the environment. */
class Flows {
    static final String RESP = System.getenv("MINOS_RESP");
    static final String RESP_TLS = System.getenv("MINOS_RESP_TLS");
    static final String MEMCACHED = System.getenv("MINOS_MEMCACHED");
    static final String LARGE = "0123456789".repeat(1_000_000);
    static final String[] NAMES = IntStream.range(0, 64).mapToObj(at -> "key" + at).toArray(String[]::new);

    interface Flow {
        void run() throws Exception;
    }

    static void check(String name, Flow flow) {
        try {
            flow.run();
            System.out.println("ok " + name);
        } catch (Throwable failure) {
            var where = Arrays.stream(failure.getStackTrace()).filter(at -> at.getClassName().startsWith("Flows"));
            var line = where.skip(failure instanceof AssertionError ? 1 : 0).findFirst();
            System.out.println("failed " + name + ": " + line + ": " + failure);
        }
    }

    static void same(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(found + ", not " + wanted);
        }
    }

    static void isTrue(boolean holds) {
        same(holds, true);
    }

    static void fails(Flow flow, String part) {
        try {
            flow.run();
        } catch (Exception refusal) {
            var cause = refusal.getCause() == null ? "" : refusal.getCause().getMessage();
            isTrue((refusal.getMessage() + cause).contains(part));
            return;
        }
        throw new AssertionError("no error with " + part);
    }

    static SSLContext trust() throws Exception {
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (var file = new FileInputStream(System.getenv("MINOS_CA"))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        return context;
    }

    static Jedis jedis(String address, DefaultJedisClientConfig.Builder config) {
        return new Jedis(HostAndPort.from(address), config.clientName("flows").timeoutMillis(20_000).build());
    }

    static void strings(Jedis r) {
        same(r.flushAll(), "OK");
        same(r.set("k", "v"), "OK");
        same(r.get("k"), "v");
        same(r.get("none"), null);
        same(r.setnx("k", "w"), 0L);
        same(r.set("k", "w", new SetParams().xx().ex(100)), "OK");
        same(r.setGet("k", "x", new SetParams().keepTtl()), "w");
        same(r.set("k", "x", new SetParams().nx()), null);
        same(r.setex("k", 100, "y") + r.psetex("k", 100_000, "y"), "OKOK");
        same(r.getEx("k", new GetExParams().ex(100)) + r.getDel("k"), "yy");
        same(r.append("k", "hello") + r.setrange("k", 1, "a") + r.strlen("k"), 15L);
        same(r.getrange("k", 1, 2) + r.substr("k", 1, 2), "alal");
        same(r.mset("m1", "ohmytext", "m2", "mynewtext"), "OK");
        same(r.msetnx("m2", "1", "m3", "2"), 0L);
        same(r.mget("m1", "none", "m2"), Arrays.asList("ohmytext", null, "mynewtext"));
        same(r.lcs("m1", "m2", new LCSParams()).getMatchString(), "mytext");
        same(r.lcs("m1", "m2", new LCSParams().idx().withMatchLen()).getMatches().size(), 2);
        same(List.of(r.incr("n"), r.incrBy("n", 9), r.decr("n"), r.decrBy("n", 4)), List.of(1L, 10L, 9L, 5L));
        same(r.incrByFloat("n", 0.5), 5.5);
        fails(() -> r.incr("n"), "ERR value is not an integer or out of range");
        isTrue(!r.setbit("b", 9, true) && r.getbit("b", 9) && r.bitcount("b") == 1);
        same(r.set("large", LARGE), "OK");
        isTrue(r.get("large").equals(LARGE));
    }

    static void expiries(Jedis r) {
        long at = System.currentTimeMillis() / 1000 + 3600;
        r.set("k", "v");
        same(List.of(r.ttl("k"), r.pttl("none")), List.of(-1L, -2L));
        same(r.expire("k", 60, ExpiryOption.NX) + r.expire("k", 1, ExpiryOption.GT), 1L);
        same(r.pexpire("k", 30_000, ExpiryOption.LT) + r.expireAt("k", at), 2L);
        same(r.expireTime("k"), at);
        same(r.pexpireAt("k", at * 1000 + 7), 1L);
        same(r.pexpireTime("k"), at * 1000 + 7);
        same(r.persist("k") + r.persist("k"), 1L);
    }

    static void keys(Jedis r) {
        same(r.flushDB(), "OK");
        var pipeline = r.pipelined();
        Arrays.stream(NAMES).forEach(name -> pipeline.set(name, "1"));
        same(new HashSet<>(pipeline.syncAndReturnAll()), Set.of("OK"));
        same(r.mget(NAMES), Collections.nCopies(64, "1"));
        var seen = new HashSet<String>();
        var cursor = "0";
        do {
            var page = r.scan(cursor, new ScanParams().match("key*").count(10), "string");
            seen.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals("0"));
        same(seen, Set.of(NAMES));
        same(r.keys("key1?").size() + r.dbSize(), 74L);
        isTrue(seen.contains(r.randomKey()) && r.exists("key1") && r.memoryUsage("key2") > 0);
        same(List.of(r.exists("key1", "none"), r.touch("key1")), List.of(1L, 1L));
        same(r.type("key1") + r.rename("key1", "r") + r.objectEncoding("key2"), "stringOKint");
        same(r.renamenx("r", "key2"), 0L);
        isTrue(r.copy("r", "s", false));
        same(r.del("r", "none") + r.unlink("s"), 2L);
    }

    static void transactions(Jedis r) {
        r.set("t", "1");
        var transaction = r.multi();
        transaction.incr("t");
        transaction.get("t");
        same(transaction.exec(), List.of(2L, "2"));
        for (boolean disturbs : new boolean[] {true, false}) {
            r.watch("t");
            if (disturbs) {
                try (var other = new Jedis(HostAndPort.from(RESP))) {
                    other.set("t", "5");
                }
            }
            var next = r.multi();
            next.incr("t");
            same(next.exec(), disturbs ? null : List.of(6L));
        }
    }

    static void server(Jedis r) {
        same(r.ping() + r.echo("e") + r.clientGetname(), "PONGeflows");
        isTrue(r.info().contains("redis_version:") && r.info("memory").contains("used_memory:"));
        isTrue(Long.parseLong(r.configGet("maxmemory").get("maxmemory")) > 0);
        isTrue(r.clientInfo().contains("name=flows") && r.clientList().contains("name=flows"));
        isTrue(r.clientId() > 0);
        isTrue(r.commandCount() > 50);
        isTrue(r.command().containsKey("get"));
        same(r.commandGetKeys("mset", "a", "1", "b", "2"), List.of("a", "b"));
        same(r.waitReplicas(0, 1000) + r.configResetStat(), "0OK");
        isTrue(r.slowlogGet().size() >= 0 && r.time().size() == 2);
        fails(() -> r.lpush("l", "1"), "ERR unknown command 'LPUSH'");
    }

    static DefaultJedisClientConfig.Builder user(String password) throws Exception {
        var secured = DefaultJedisClientConfig.builder().ssl(true).sslSocketFactory(trust().getSocketFactory());
        return secured.user("app").password(password);
    }

    static void jedis() throws Exception {
        for (var kind : Map.of(
                "RESP2", DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP2),
                "RESP3", DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3),
                "TLS and user", user("secret")).entrySet()) {
            var name = "jedis, " + kind.getKey() + ": ";
            try (var r = jedis(kind.getKey().startsWith("TLS") ? RESP_TLS : RESP, kind.getValue())) {
                check(name + "strings", () -> strings(r));
                check(name + "expiries", () -> expiries(r));
                check(name + "keys", () -> keys(r));
                check(name + "transactions", () -> transactions(r));
                check(name + "server", () -> server(r));
            }
        }
        check("jedis: a wrong password", () -> fails(() -> jedis(RESP_TLS, user("wrong")).ping(), "WRONGPASS"));
    }

    static void lettuce(ProtocolVersion version, RedisURI uri) {
        var client = RedisClient.create(uri);
        var ssl = SslOptions.builder().trustManager(new File(System.getenv("MINOS_CA"))).build();
        client.setOptions(ClientOptions.builder().protocolVersion(version).sslOptions(ssl).build());
        try (var connection = client.connect()) {
            var r = connection.sync();
            same(r.flushall() + r.set("k", "v", SetArgs.Builder.ex(100).nx()) + r.get("k"), "OKOKv");
            isTrue(r.expire("k", 200, ExpireArgs.Builder.gt()) && r.ttl("k") > 190);
            same(r.setGet("k", "w") + r.getdel("k") + r.append("n", "1") + r.incrby("n", 41), "vw142");
            same(r.mset(Map.of("a", "1", "b", "2")), "OK");
            var values = r.mget("a", "none", "b").stream().map(one -> one.getValueOrElse("-"));
            same(values.toList(), List.of("1", "-", "2"));
            var seen = new HashSet<String>();
            ScanCursor cursor = ScanCursor.INITIAL;
            while (!cursor.isFinished()) {
                KeyScanCursor<String> page = r.scan(cursor, ScanArgs.Builder.matches("?").limit(10));
                seen.addAll(page.getKeys());
                cursor = page;
            }
            same(seen, Set.of("a", "b", "n"));
            same(r.multi(), "OK");
            r.incr("n");
            r.get("n");
            same(r.exec().stream().toList(), List.of(43L, "43"));
            same(r.set("large", LARGE), "OK");
            isTrue(r.get("large").equals(LARGE));
            // Sent before the first reply has come.
            var all = IntStream.range(0, 1000).mapToObj(at -> connection.async().incr("m").toCompletableFuture());
            same(all.toList().stream().mapToLong(reply -> reply.join()).max().getAsLong(), 1000L);
            isTrue(r.info().contains("redis_version:") && r.clientList().contains("lib-name=") && r.clientId() > 0);
            fails(() -> r.lpush("l", "1"), "ERR unknown command 'LPUSH'");
        } finally {
            client.shutdown(0, 1, TimeUnit.SECONDS);
        }
    }

    static void spymemcached(String user) throws Exception {
        var builder = new ConnectionFactoryBuilder(new BinaryConnectionFactory());
        builder.setProtocol(ConnectionFactoryBuilder.Protocol.BINARY);
        if (user != null) {
            var handler = new PlainCallbackHandler(user, "secret");
            builder.setAuthDescriptor(new AuthDescriptor(new String[] {"PLAIN"}, handler));
        }
        var client = new net.spy.memcached.MemcachedClient(builder.build(), AddrUtil.getAddresses(MEMCACHED));
        try {
            isTrue(client.flush().get() && client.set("k", 100, "v").get() && !client.add("k", 100, "w").get());
            same(client.get("k"), "v");
            var found = client.gets("k");
            same(client.cas("k", found.getCas(), "new"), CASResponse.OK);
            same(client.cas("k", found.getCas(), "late"), CASResponse.EXISTS);
            same(client.incr("n", 2, 7L, 100) + client.incr("n", 2, 7L, 100) + client.decr("n", 1), 24L);
            isTrue(client.append("k", ">").get() && client.touch("k", 100).get());
            same(client.getAndTouch("k", 100).getValue(), "new>");
            for (var name : NAMES) {
                client.set(name, 100, name);
            }
            same(client.getBulk(NAMES).size(), 64);
            isTrue(client.delete("k").get() && client.get("k") == null && client.getStats().size() == 1);
        } finally {
            client.shutdown();
        }
    }

    static void xmemcached() throws Exception {
        var builder = new XMemcachedClientBuilder(AddrUtil.getAddresses(MEMCACHED));
        builder.setCommandFactory(new BinaryCommandFactory());
        MemcachedClient client = builder.build();
        try {
            client.flushAll();
            isTrue(client.set("k", 100, "v") && !client.add("k", 100, "w") && client.replace("k", 100, "x"));
            same(client.<String>get("k"), "x");
            isTrue(client.cas("k", 100, "new", client.gets("k").getCas()) && client.touch("k", 100));
            same(client.incr("n", 2, 7) + client.incr("n", 2, 7) + client.decr("n", 1), 24L);
            for (var name : NAMES) {
                client.set(name, 100, name);
            }
            same(client.get(List.of(NAMES)).size(), 64);
            isTrue(client.delete("k") && client.get("k") == null && client.getStats().size() == 1);
        } finally {
            client.shutdown();
        }
    }

    public static void main(String[] arguments) throws Exception {
        jedis();
        check("lettuce, RESP2", () -> lettuce(ProtocolVersion.RESP2, RedisURI.create("redis://" + RESP)));
        check("lettuce, RESP3", () -> lettuce(ProtocolVersion.RESP3, RedisURI.create("redis://" + RESP)));
        check("lettuce, TLS and user",
                () -> lettuce(ProtocolVersion.RESP3, RedisURI.create("rediss://app:secret@" + RESP_TLS)));
        check("spymemcached", () -> spymemcached(null));
        check("spymemcached, with a user", () -> spymemcached("app"));
        check("xmemcached", () -> xmemcached());
        System.exit(0);
    }
}
