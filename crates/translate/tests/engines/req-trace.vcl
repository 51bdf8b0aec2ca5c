# difference: variables-since-7.7
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_recv {
  set req.trace = true;
}
