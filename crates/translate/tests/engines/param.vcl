# difference: variables-since-9.0
# compiles on: 9.0
vcl 4.1;
backend none none;
sub vcl_backend_response {
  set beresp.ttl = param.default_ttl;
}
