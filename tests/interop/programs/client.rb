# ruby-stomp. Prints a line of the Test Anything Protocol for each step.
require "stomp"
require "timeout"

def connected
  options = { hosts: [{ login: "", passcode: "", host: "127.0.0.1", port: ENV["STOMP_PORT"].to_i }], reliable: false,
              connect_headers: { "accept-version" => "1.2", "host" => "localhost" }, logger: nil }
  Stomp::Connection.new(options)
end

# A frame that asks for a receipt, and its receipt.
def confirmed(connection)
  @receipts = (@receipts || 0) + 1
  yield "r#{@receipts}"
  frame = connection.receive
  raise "#{frame.command} instead of RECEIPT" unless frame.command == "RECEIPT" && frame.headers["receipt-id"] == "r#{@receipts}"
end

def equal(is, wanted)
  raise "#{is.inspect} instead of #{wanted.inspect}" unless is == wanted
end

def step(name)
  Timeout.timeout(20) { yield }
  puts "ok - #{name}"
rescue Exception => error
  puts "not ok - #{name} # #{error.message.lines.first}"
end

connection = nil
step("connect") do
  connection = connected
  equal(connection.protocol, "1.2")
end
step("send with a receipt") do
  confirmed(connection) { |id| connection.publish("/queue/rb.a", "päper", { "color" => "red", "receipt" => id }) }
end
step("subscribe with a selector") do
  connection.publish("/queue/rb.a", "no", { "color" => "blue" })
  connection.publish("/queue/rb.a", "5", { "amount;type=int" => "5" })
  connection.subscribe("/queue/rb.a", { "id" => "1", "selector" => "color = 'red' OR amount > 4" })
  equal([connection.receive.body.force_encoding("UTF-8"), connection.receive.body], ["päper", "5"])
  connection.unsubscribe("/queue/rb.a", { "id" => "1" })
end
step("acknowledge") do
  %w[1 2 3].each { |body| connection.publish("/queue/rb.b", body) }
  first = connected
  first.subscribe("/queue/rb.b", { "id" => "1", "ack" => "client-individual" })
  messages = Array.new(3) { first.receive }
  confirmed(first) { |id| first.ack(messages[1].headers["ack"], { "id" => messages[1].headers["ack"], "receipt" => id }) }
  first.disconnect
  connection.subscribe("/queue/rb.b", { "id" => "2", "ack" => "client" })
  one = connection.receive
  three = connection.receive
  equal([one.body, one.headers["redelivered"], three.body], %w[1 true 3])
  confirmed(connection) { |id| connection.ack(three.headers["ack"], { "id" => three.headers["ack"], "receipt" => id }) } # cumulative
  connection.unsubscribe("/queue/rb.b", { "id" => "2" })
end
step("return a message") do
  connection.publish("/queue/rb.c", "x")
  connection.subscribe("/queue/rb.c", { "id" => "3", "ack" => "client-individual" })
  message = connection.receive
  connection.nack(message.headers["ack"], { "id" => message.headers["ack"] })
  again = connection.receive
  equal([again.body, again.headers["redelivered"]], %w[x true])
  connection.ack(again.headers["ack"], { "id" => again.headers["ack"] })
  connection.unsubscribe("/queue/rb.c", { "id" => "3" })
end
step("commit and abort") do
  connection.begin("t1")
  connection.publish("/queue/rb.d", "aborted", { "transaction" => "t1" })
  connection.abort("t1")
  connection.begin("t2")
  %w[1 2].each { |body| connection.publish("/queue/rb.d", body, { "transaction" => "t2" }) }
  connection.commit("t2")
  connection.subscribe("/queue/rb.d", { "id" => "4" })
  equal([connection.receive.body, connection.receive.body], %w[1 2])
end
step("a wrong selector is an ERROR with the place") do
  connection.subscribe("/queue/rb.a", { "id" => "5", "selector" => "amount >" })
  frame = connection.receive
  equal(frame.command, "ERROR")
  raise frame.body unless frame.body.include?("^")
end
