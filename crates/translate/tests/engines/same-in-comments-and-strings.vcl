# difference: none
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
backend none none;
# req.max_age
sub vcl_recv {
  /* unset req.http.Content-Length; */
  set req.http.a = "std.real2integer(1.5, 0)" + {"req.max_age"};
}
