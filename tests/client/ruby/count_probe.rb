# The count probe through Ruby's generated stubs:
#   count_probe.rb STUBS host:port
# q is 0, so every visible key weighs the same; V[j] = j + 1. Two queries over
# five keys, causal: TOP_LEFT 1, 1.5 and BOTTOM_RIGHT 2.5, 3, exactly.
require 'google/protobuf/well_known_types'
require 'grpc'

$LOAD_PATH.unshift(ARGV.fetch(0))
require 'attendant/v1/attention_services_pb'
require 'attendant/v1/error_pb'

V1 = Attendant::V1
STUB = V1::AttentionService::Stub.new(ARGV.fetch(1), :this_channel_is_insecure)

def tensor(shape)
  V1::TensorSpec.new(dtype: :DATA_TYPE_FP32, layout: :LAYOUT_BSHD, shape: shape)
end

def request(rows, keys, options)
  V1::AttendRequest.new(
    q: tensor([1, rows, 1, 4]), q_data: ([0.0] * rows * 4).pack('e*'),
    k: tensor([1, keys, 1, 4]), k_data: ([1.0] * keys * 4).pack('e*'),
    v: tensor([1, keys, 1, 1]),
    v_data: (1..keys).map(&:to_f).pack('e*'),
    return_lse: true, **options
  )
end

def attend(rows, keys, options)
  STUB.attend(request(rows, keys, options), deadline: Time.now + 60)
end

def expect(actual, expected)
  raise "#{actual} is not #{expected}" unless actual == expected
end

{
  CAUSAL_ALIGNMENT_TOP_LEFT: [1.0, 1.5],
  CAUSAL_ALIGNMENT_BOTTOM_RIGHT: [2.5, 3.0]
}.each do |alignment, expected|
  reply = attend(2, 5, causal: true, alignment: alignment)
  expect(reply.output_data.unpack('e*'), expected)
  expect(reply.output.shape.to_a, [1, 2, 1, 1])
  puts "#{alignment}: #{expected} by #{reply.served_by.kernel}"
end

reply = attend(1, 8, {})
lse = reply.lse_data.unpack1('e')
raise "lse #{lse}" unless (lse - Math.log(8)).abs < 1e-6

# Without an alignment the same question has no answer; the error says why.
begin
  attend(2, 5, causal: true)
  raise 'an ambiguous request was answered'
rescue GRPC::InvalidArgument => e
  status = V1::RpcStatus.decode(e.metadata['grpc-status-details-bin'])
  detail = status.details.first.unpack(V1::ErrorDetail)
  expect(detail.field, 'alignment')
  puts "refused: #{detail.field} #{detail.value}, must be #{detail.bound}"
end
