<?php
// The flows of PHP's memcached over the binary protocol, and sessions. Prints a line for each check.

[$host, $port] = explode(':', getenv('MINOS_MEMCACHED'));

function check(string $name, array $found, array $wanted): void
{
    echo $found === $wanted ? "ok $name\n" : "failed $name: " . json_encode($found) . "\n";
}

ini_set('session.save_handler', 'memcached');
ini_set('session.save_path', "$host:$port");
ini_set('session.use_cookies', '0');
ini_set('session.cache_limiter', '');
ini_set('memcached.sess_binary_protocol', '1');
session_id('flows');
session_start();
$_SESSION = ['seen' => [1, 2]];
session_write_close();
$_SESSION = [];
session_id('flows');
session_start();
$found = $_SESSION;
session_destroy();
check('PHP: a session', $found, ['seen' => [1, 2]]);

foreach (['without' => false, 'with' => true] as $kind => $has_user) {
    $client = new Memcached();
    $client->setOption(Memcached::OPT_BINARY_PROTOCOL, true);
    if ($has_user) {
        $client->setSaslAuthData('app', 'secret');
    }
    $client->addServer($host, (int) $port);
    $client->flush();
    $client->set('k', ['v'], 100);
    $cas = $client->get('k', null, Memcached::GET_EXTENDED)['cas'];
    check("PHP, $kind a user", [
        $client->cas($cas, 'k', 'w'), $client->cas($cas, 'k', 'late'), $client->add('k', 1), $client->touch('k', 50),
        $client->increment('n', 2, 7, 100), $client->increment('n', 2, 7, 100), $client->decrement('n', 1),
        $client->setMulti(['a' => 1, 'b' => 2]), $client->getMulti(['a', 'b', 'none']),
        $client->delete('k'), $client->get('k'), count($client->getStats()),
    ], [true, false, false, true, 7, 9, 8, true, ['a' => 1, 'b' => 2], true, false, 1]);
}
