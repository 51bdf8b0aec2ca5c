# difference: variables-since-7.7
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_backend_fetch {
  set bereq.trace = true;
}
