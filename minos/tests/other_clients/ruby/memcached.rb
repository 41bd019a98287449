# The flows of dalli over memcached's binary protocol. Prints a line for each check.

require 'dalli'
require 'logger'

Dalli.logger = Logger.new(nil)

def client(**user)
  Dalli::Client.new(ENV.fetch('MINOS_MEMCACHED'), protocol: :binary, value_max_bytes: 4_000_000, **user)
end

def check(name)
  yield
  puts "ok #{name}"
rescue StandardError => e
  puts "failed #{name}: #{e.class} #{e.message} #{e.backtrace.first}"
end

def same(found, wanted)
  raise "#{found.inspect}, not #{wanted.inspect}" unless found == wanted
end

def flows(client)
  client.flush
  same(client.set('k', { a: 1 }) && client.get('k'), { a: 1 })
  same([client.add('k', 1), !!client.replace('k', 'x')], [false, true])
  same([client.incr('n', 2, 100, 7), client.incr('n', 2), client.decr('n', 1)], [7, 9, 8])
  client.cas('k') { |value| "#{value}y" }
  same([client.get('k'), client.append('none', 'x')], ['xy', false])
  client.multi { 100.times { |at| client.set("m#{at}", at) } }
  same(client.get_multi((0..150).map { |at| "m#{at}" }), (0..99).to_h { |at| ["m#{at}", at] })
  large = 'x' * 3_000_000
  same(client.set('large', large) && client.get('large'), large)
  same([!!client.touch('k', 50), client.gat('k', 60), client.delete('k'), client.get('k')], [true, 'xy', true, nil])
  same(client.stats.values[0].key?('version'), true)
end

check('dalli') { flows(client) }
check('dalli, with a user') { flows(client(username: 'app', password: 'secret')) }
check('dalli: a wrong password') do
  client(username: 'app', password: 'wrong').get('k')
  raise 'it was taken'
rescue Dalli::DalliError
  nil
end
