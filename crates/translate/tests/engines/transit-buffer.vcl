# difference: transit-buffer
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_backend_response {
  set beresp.transit_buffer = 1M;
}
