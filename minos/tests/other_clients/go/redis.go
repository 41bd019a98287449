// The flows of go-redis against a server whose addresses are in the environment. Prints a line for each check.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	ctx   = context.Background()
	large = string(bytes.Repeat([]byte("0123456789"), 1_000_000))
)

func options(version int) *redis.Options {
	return &redis.Options{Addr: os.Getenv("MINOS_RESP"), Protocol: version, ClientName: "flows"}
}

func secured() *redis.Options {
	authority, err := os.ReadFile(os.Getenv("MINOS_CA"))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &redis.Options{
		Addr: os.Getenv("MINOS_RESP_TLS"), Username: "app", Password: "secret",
		TLSConfig: &tls.Config{RootCAs: roots, ServerName: "localhost"},
	}
}

// The results of one check.
type check struct {
	seen  int
	wrong []string
}

// good notes a result that differs from what is wanted, with its number.
func (c *check) good(found any, err error, wanted any) {
	c.seen++
	if err != nil {
		found = err
	}
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		c.wrong = append(c.wrong, fmt.Sprintf("%d. %v, not %v", c.seen, found, wanted))
	}
}

func (c *check) fails(err error, part string) {
	c.good(err != nil && strings.Contains(err.Error(), part), nil, true)
}

func stringCommands(c *check, r *redis.Client) {
	good := func(found any, err error, wanted any) { c.good(found, err, wanted) }
	is := func(command interface{ Err() error }, wanted string) {
		_, reply, _ := strings.Cut(fmt.Sprint(command), ": ")
		good(reply, nil, wanted)
	}
	is(r.FlushAll(ctx), "OK")
	is(r.Set(ctx, "k", "v", 0), "OK")
	is(r.Get(ctx, "k"), "v")
	c.fails(r.Get(ctx, "none").Err(), redis.Nil.Error())
	is(r.SetNX(ctx, "k", "w", 0), "false")
	is(r.SetXX(ctx, "k", "w", time.Hour), "true")
	is(r.SetArgs(ctx, "k", "x", redis.SetArgs{Mode: "XX", Get: true, KeepTTL: true}), "w")
	is(r.SetArgs(ctx, "k", "y", redis.SetArgs{ExpireAt: time.Now().Add(time.Hour)}), "OK")
	is(r.SetEx(ctx, "k", "z", time.Minute), "OK")
	is(r.GetSet(ctx, "k", "a"), "z")
	is(r.GetEx(ctx, "k", time.Minute), "a")
	is(r.GetDel(ctx, "k"), "a")
	is(r.Append(ctx, "k", "hello"), "5")
	is(r.SetRange(ctx, "k", 1, "a"), "5")
	is(r.GetRange(ctx, "k", 1, 2), "al")
	is(r.StrLen(ctx, "k"), "5")
	is(r.MSet(ctx, "m1", 1, "m2", 2), "OK")
	is(r.MSetNX(ctx, "m2", 1, "m3", 2), "false")
	is(r.MGet(ctx, "m1", "none", "m2"), "[1 <nil> 2]")
	is(r.Incr(ctx, "n"), "1")
	is(r.IncrBy(ctx, "n", 9), "10")
	is(r.Decr(ctx, "n"), "9")
	is(r.DecrBy(ctx, "n", 4), "5")
	is(r.IncrByFloat(ctx, "n", 0.5), "5.5")
	c.fails(r.Incr(ctx, "n").Err(), "ERR value is not an integer or out of range")
	is(r.SetBit(ctx, "b", 9, 1), "0")
	is(r.GetBit(ctx, "b", 9), "1")
	is(r.BitCount(ctx, "b", &redis.BitCount{Start: 0, End: -1}), "1")
	lcs, err := r.LCS(ctx, &redis.LCSQuery{Key1: "m1", Key2: "m2", Len: true}).Result()
	good(lcs.Len, err, 0)
	is(r.Set(ctx, "large", large, 0), "OK")
	found, err := r.Get(ctx, "large").Result()
	good(found == large, err, true)
}

func expiries(c *check, r *redis.Client) {
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	c.good(r.Set(ctx, "k", "v", 100*time.Millisecond).Val(), nil, "OK")
	pttl, err := r.PTTL(ctx, "k").Result()
	c.good(pttl <= 100*time.Millisecond && pttl > -3, err, true)
	c.good(r.Set(ctx, "k", "v", 0).Val(), nil, "OK")
	c.good(r.TTL(ctx, "k").Val(), nil, time.Duration(-1))
	c.good(r.ExpireNX(ctx, "k", time.Minute).Val(), nil, true)
	c.good(r.ExpireGT(ctx, "k", time.Second).Val(), nil, false)
	c.good(r.ExpireLT(ctx, "k", time.Second*30).Val(), nil, true)
	c.good(r.ExpireXX(ctx, "k", time.Minute).Val(), nil, true)
	c.good(r.ExpireAt(ctx, "k", at).Val(), nil, true)
	c.good(r.ExpireTime(ctx, "k").Val(), nil, time.Duration(at.Unix())*time.Second)
	c.good(r.PExpire(ctx, "k", time.Minute).Val(), nil, true)
	c.good(r.PExpireAt(ctx, "k", at).Val(), nil, true)
	c.good(r.PExpireTime(ctx, "k").Val(), nil, time.Duration(at.UnixMilli())*time.Millisecond)
	c.good(r.Persist(ctx, "k").Val(), nil, true)
}

func keys(c *check, r *redis.Client) {
	c.good(r.FlushDB(ctx).Val(), nil, "OK")
	names := []string{}
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 64 {
			names = append(names, fmt.Sprint("key", i))
			p.Set(ctx, names[i], i, 0)
		}
		return nil
	})
	c.good(nil, err, nil)
	values, err := r.MGet(ctx, names...).Result()
	c.good(len(values) == 64 && values[63] == "63", err, true)
	seen := map[string]bool{}
	iter := r.Scan(ctx, 0, "key*", 10).Iterator()
	for iter.Next(ctx) {
		seen[iter.Val()] = true
	}
	c.good(len(seen), iter.Err(), 64)
	c.good(len(r.Keys(ctx, "key1?").Val()), nil, 10)
	c.good(r.DBSize(ctx).Val(), nil, 64)
	c.good(strings.HasPrefix(r.RandomKey(ctx).Val(), "key"), nil, true)
	c.good(r.Exists(ctx, "key1", "key2", "none").Val(), nil, 2)
	c.good(r.Touch(ctx, "key1", "none").Val(), nil, 1)
	c.good(r.Type(ctx, "key1").Val(), nil, "string")
	c.good(r.Rename(ctx, "key1", "r").Val(), nil, "OK")
	c.good(r.RenameNX(ctx, "r", "key2").Val(), nil, false)
	c.good(r.Copy(ctx, "r", "s", 0, true).Val(), nil, 1)
	c.good(r.Del(ctx, "r", "none").Val(), nil, 1)
	c.good(r.Unlink(ctx, "s").Val(), nil, 1)
	c.good(r.ObjectEncoding(ctx, "key2").Val(), nil, "int")
	c.good(r.ObjectEncoding(ctx, "none").Err(), nil, redis.Nil)
	idle, err := r.ObjectIdleTime(ctx, "key2").Result()
	c.good(idle < 2*time.Minute, err, true)
	used, err := r.MemoryUsage(ctx, "key2").Result()
	c.good(used > 0, err, true)
}

func transactions(c *check, r *redis.Client) {
	r.Set(ctx, "t", 1, 0)
	replies, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "t")
		p.Get(ctx, "t")
		return nil
	})
	c.good(len(replies), err, 2)
	c.good(replies[1].(*redis.StringCmd).Val(), nil, "2")
	disturbed := func(disturbs bool) error {
		return r.Watch(ctx, func(tx *redis.Tx) error {
			if disturbs {
				r.Set(ctx, "t", 5, 0)
			}
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Incr(ctx, "t").Err() })
			return err
		}, "t")
	}
	c.good(errors.Is(disturbed(true), redis.TxFailedErr), nil, true)
	c.good(nil, disturbed(false), nil)
	c.good(r.Get(ctx, "t").Val(), nil, "6")
}

func server(c *check, r *redis.Client) {
	info, err := r.InfoMap(ctx).Result()
	c.good(info["Server"]["redis_version"] != "", err, true)
	limits, err := r.ConfigGet(ctx, "maxmemory*").Result()
	c.good(limits["maxmemory"] != "" && limits["maxmemory-policy"] != "", err, true)
	commands, err := r.Command(ctx).Result()
	c.good(commands["get"] != nil && commands["get"].ReadOnly, err, true)
	names, err := r.CommandList(ctx, &redis.FilterBy{ACLCat: "admin"}).Result()
	c.good(slices.Contains(names, "config|set"), err, true)
	found, err := r.CommandGetKeys(ctx, "mset", "a", "1", "b", "2").Result()
	c.good(found, err, []string{"a", "b"})
	c.good(r.Echo(ctx, "e").Val(), nil, "e")
	c.good(r.ClientGetName(ctx).Val(), r.ClientID(ctx).Err(), "flows")
	itself, err := r.ClientInfo(ctx).Result()
	c.good(err == nil && itself.Name == "flows", err, true)
	c.good(strings.Contains(r.ClientList(ctx).Val(), "name=flows"), nil, true)
	c.good(time.Since(r.Time(ctx).Val()).Abs() < time.Minute, r.SlowLogGet(ctx, 10).Err(), true)
	c.good(r.Wait(ctx, 0, time.Second).Val(), r.ConfigResetStat(ctx).Err(), 0)
	c.fails(r.LPush(ctx, "l", 1).Err(), "ERR unknown command 'lpush'")
}

type flow struct {
	name string
	run  func(*check, *redis.Client)
}

func main() {
	for _, kind := range []string{"RESP2", "RESP3", "TLS and user"} {
		chosen := map[string]*redis.Options{"RESP2": options(2), "RESP3": options(3)}[kind]
		if chosen == nil {
			chosen = secured()
			chosen.ClientName = "flows"
		}
		client := redis.NewClient(chosen)
		for _, flow := range []flow{
			{"strings", stringCommands}, {"expiries", expiries}, {"keys", keys}, {"transactions", transactions},
			{"server", server},
		} {
			var c check
			flow.run(&c, client)
			if len(c.wrong) == 0 {
				fmt.Printf("ok %s: %s\n", kind, flow.name)
			} else {
				fmt.Printf("failed %s: %s: %s\n", kind, flow.name, strings.Join(c.wrong, "; "))
			}
		}
	}
	wrong := secured()
	wrong.Password = "wrong"
	if err := redis.NewClient(wrong).Ping(ctx).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		fmt.Println("failed a wrong password:", err)
	} else {
		fmt.Println("ok a wrong password")
	}
}
